"""Loops of others train a lowered module inside of an eager one as they train that module itself, to the bit."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import aten_recompute
from support.helpers import assert_same, num_compiled, scripted_copy

PRECISIONS = ["float32", "bfloat16"]
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "budget": {"memory_budget": 0.8, "unreachable": "leanest"},
}
ROWS, BATCH, FEATURES, CLASSES = 48, 8, 16, 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 32)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.dropout(torch.relu(self.norm(self.first(x))), 0.2, self.training))


class Rows(Dataset[dict[str, Tensor]]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(ROWS, FEATURES, generator=generator)
        self.labels = torch.randint(CLASSES, (ROWS,), generator=generator)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "labels": self.labels[index]}


class WithLoss(nn.Module):
    """An eager module around the network, as transformers.Trainer wants it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.network(x)
        return {"logits": logits} if labels is None else {"loss": F.cross_entropy(logits, labels), "logits": logits}


def both(strategy: str) -> tuple[WithLoss, WithLoss]:
    """Returns the network, lowered and as it is."""
    torch.manual_seed(0)
    eager = Net()
    return WithLoss(aten_recompute.lower(scripted_copy(eager), strategy, **OPTIONS[strategy])), WithLoss(eager)


def state(module: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in module.state_dict().values()]


def transformers_trainer(model: WithLoss, precision: str, folder: Path, steps: int, resume: bool) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        save_steps=2,
        save_strategy="steps",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=precision == "bfloat16",
        max_grad_norm=0.5,
        lr_scheduler_type="constant",
        seed=3,
        disable_tqdm=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=Rows(), eval_dataset=Rows(), optimizers=(optimizer, None)
    )
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("strategy", OPTIONS)
def test_transformers_trainer(tmp_path: Path, strategy: str, precision: str) -> None:
    lowered, eager = both(strategy)
    start = copy.deepcopy(eager.state_dict())
    transformers_trainer(lowered, precision, tmp_path / "lowered", 4, resume=False)
    transformers_trainer(eager, precision, tmp_path / "eager", 4, resume=False)
    assert_same(state(lowered), state(eager))
    assert not torch.equal(state(lowered)[0], start["network.first.weight"])
    assert num_compiled(lowered.network) > 0
    # What was trained for four steps, and saved, goes on to eight as if it had not stopped.
    resumed, whole = both(strategy)
    resumed.load_state_dict(start)
    transformers_trainer(resumed, precision, tmp_path / "lowered", 8, resume=True)
    whole.load_state_dict(start)
    transformers_trainer(whole, precision, tmp_path / "whole", 8, resume=False)
    assert_same(state(resumed), state(whole))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("strategy", OPTIONS)
def test_lightning(tmp_path: Path, strategy: str, precision: str) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self, model: WithLoss) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
            return self.model(**batch)["loss"]

        def validation_step(self, batch: dict[str, Tensor], index: int) -> None:
            self.log("loss", self.model(**batch)["loss"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def fit(model: WithLoss, folder: Path, epochs: int, checkpoint: Path | None = None) -> Path:
        lightning.seed_everything(3, verbose=False)
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices=1,
            precision="bf16-mixed" if precision == "bfloat16" else "32-true",
            accumulate_grad_batches=2,
            gradient_clip_val=0.5,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(Module(model), DataLoader(Rows(), BATCH), DataLoader(Rows(), BATCH), ckpt_path=checkpoint)
        trainer.save_checkpoint(folder / "last.ckpt")
        return folder / "last.ckpt"

    lowered, eager = both(strategy)
    start = copy.deepcopy(eager.state_dict())
    mine, theirs = fit(lowered, tmp_path / "lowered", 2), fit(eager, tmp_path / "eager", 2)
    assert_same(state(lowered), state(eager))
    assert not torch.equal(state(lowered)[0], start["network.first.weight"])
    assert num_compiled(lowered.network) > 0
    resumed, whole = both(strategy)
    resumed.load_state_dict(start)
    fit(resumed, tmp_path / "resumed", 4, mine)
    whole.load_state_dict(start)
    fit(whole, tmp_path / "whole", 4, theirs)
    assert_same(state(resumed), state(whole))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("strategy", OPTIONS)
def test_accelerate(tmp_path: Path, strategy: str, precision: str) -> None:
    accelerate = pytest.importorskip("accelerate")

    def train(model: WithLoss, folder: Path, steps: range) -> None:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = accelerate.Accelerator(
            cpu=True,
            mixed_precision="bf16" if precision == "bfloat16" else "no",
            gradient_accumulation_steps=2,
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        prepared, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Rows(), BATCH))
        if steps.start > 0:
            accelerator.load_state(str(folder))
        for step, batch in enumerate(loader):
            if step not in steps:
                continue
            torch.manual_seed(step)
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(**batch)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.save_state(str(folder), safe_serialization=False)

    lowered, eager = both(strategy)
    start = copy.deepcopy(eager.state_dict())
    train(lowered, tmp_path / "lowered", range(4))
    train(eager, tmp_path / "eager", range(4))
    assert_same(state(lowered), state(eager))
    assert not torch.equal(state(lowered)[0], start["network.first.weight"])
    assert num_compiled(lowered.network) > 0
    resumed, _ = both(strategy)
    train(resumed, tmp_path / "lowered", range(4, 6))
    train(eager, tmp_path / "eager", range(4, 6))
    assert_same(state(resumed), state(eager))


def train_step(model: WithLoss, optimizer: torch.optim.Optimizer, step: int) -> float:
    rows = Rows()
    chosen = torch.arange(BATCH) + BATCH * (step % (ROWS // BATCH))
    torch.manual_seed(step)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(rows.x[chosen], rows.labels[chosen])["loss"]
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("strategy", OPTIONS)
def test_averages_are_those_of_the_eager_module(strategy: str) -> None:
    """The average is a module of its own, made by ``clone`` as ``copy.deepcopy`` makes none that can be trained."""
    averages: list[list[Tensor]] = []
    outputs: list[Tensor] = []
    for model in both(strategy):
        network = model.network
        # AveragedModel copies the module it is given by copy.deepcopy.
        own = aten_recompute.unlower(network) if isinstance(network, torch.jit.ScriptModule) else network
        average = torch.optim.swa_utils.AveragedModel(
            own, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
        for step in range(4):
            train_step(model, optimizer, step)
            average.update_parameters(network)
            schedule.step()
        averages.append(state(average))
        with torch.no_grad():
            outputs.append(average.eval()(Rows().x))
    assert_same(*averages)
    assert torch.equal(*outputs)


class Interrupts:
    """Raises KeyboardInterrupt in the middle of a backward, as a user does."""

    def __init__(self, tensor: Tensor) -> None:
        self.handle = tensor.register_hook(self.hook)

    def hook(self, gradient: Tensor) -> None:
        self.handle.remove()
        raise KeyboardInterrupt


@pytest.mark.parametrize("strategy", OPTIONS)
def test_training_goes_on_after_an_interrupt(strategy: str, tmp_path: Path) -> None:
    """The first step ends early, in its backward; what follows, and what is resumed from a file, are as in eager."""
    found: list[list[Any]] = []
    for number, model in enumerate(both(strategy)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses: list[float] = []
        Interrupts(dict(model.named_parameters())["network.first.weight"])
        with pytest.raises(KeyboardInterrupt):
            train_step(model, optimizer, 0)
        losses += [train_step(model, optimizer, step) for step in range(3)]
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / f"{number}.pt")
        losses += [train_step(model, optimizer, step) for step in range(3, 6)]
        saved = torch.load(tmp_path / f"{number}.pt")
        again = both(strategy)[number]
        again.load_state_dict(saved["model"])
        optimizer = torch.optim.AdamW(again.parameters(), lr=1e-2)
        optimizer.load_state_dict(saved["optimizer"])
        assert [train_step(again, optimizer, step) for step in range(3, 6)] == losses[3:]
        assert_same(state(again), state(model))
        found.append([losses, *state(model)])
    assert found[0][0] == found[1][0]
    assert_same(found[0][1:], found[1][1:])
