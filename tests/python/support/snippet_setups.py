"""What the snippets of the documents take for granted: a mark above a snippet names one of these functions.

Each returns names for the snippets of the page. A reader puts a model of their own in their place.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.networks.gpt import GPT
from benchmarks.networks.resnet import ResNet

Names = dict[str, Any]


def _gpt(blocks: int = 2) -> nn.Module:
    return GPT(blocks=blocks, width=32, heads=2, context=512, vocabulary=128)


def gpt() -> Names:
    """A small language model, scripted as ``model``, with a batch for it."""
    batch = torch.randint(128, (4, 65))
    tokens, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    names: Names = {"torch": torch, "aten_recompute": aten_recompute, "GPT": _gpt, "tokens": tokens, "targets": targets}
    return {**names, "model": torch.jit.script(_gpt())}


def imports() -> Names:
    """What each program imports."""
    return {"torch": torch, "aten_recompute": aten_recompute, "nn": nn, "Tensor": Tensor}


def torchscript() -> Names:
    """A module ``scripted`` for PyTorch's own route."""
    return {"torch": torch, "scripted": torch.jit.script(_gpt())}


def eager_gpt() -> Names:
    """The same with ``model`` in eager mode."""
    return {**gpt(), "model": _gpt(blocks=4)}  # one of them is drawn by itself


def trained_gpt() -> Names:
    """The same with ``lowered``, which has made a step under a budget."""
    names = gpt()
    lowered = aten_recompute.lower(names["model"], "budget", memory_budget=0.5)
    lowered(names["tokens"], names["targets"]).backward()
    return {**names, "lowered": lowered}


def unreachable() -> Names:
    """``lowered`` has a budget that no plan keeps."""
    names = gpt()
    return {**names, "lowered": aten_recompute.lower(names["model"], "budget", memory_budget="64KiB")}


def resnet() -> Names:
    """A small ResNet, ``model``, with images and a loss."""
    model = ResNet(blocks=(2, 2, 2, 2), width=8, classes=10)
    images, targets = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
    names: Names = {"torch": torch, "aten_recompute": aten_recompute, "model": model, "images": images}
    return {**names, "targets": targets, "loss_fn": nn.functional.cross_entropy}


def resnet_file() -> Names:
    """A ResNet-50 in the file ``resnet.pt``, as ``torch.jit.save`` writes it."""
    torch.jit.script(ResNet(blocks=(3, 4, 6, 3))).save("resnet.pt")
    return {}


def command_files() -> Names:
    """A GPT in ``gpt.pt``, lowered with budgets 0.7 and 0.4 in ``large.pt`` and ``small.pt``, and the plans of both."""
    names = gpt()
    model = torch.jit.script(_gpt(blocks=8))
    save: Any = torch.jit.save
    save(model, "gpt.pt")
    for budget, file, plan in ((0.7, "large.pt", "before.json"), (0.4, "small.pt", "after.json")):
        lowered = aten_recompute.lower(model, "budget", memory_budget=budget)
        save(lowered, file)
        lowered(names["tokens"], names["targets"]).backward()
        aten_recompute.save_plan(lowered, plan)
    return {}


def trainer() -> Names:
    """What Hugging Face's ``Trainer`` takes: arguments and data for one step."""
    from transformers import Trainer, TrainingArguments

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(16, 8)
            self.head = nn.Linear(8, 16)

        def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.head(torch.relu(self.embedding(input_ids)))
            return {"loss": nn.functional.cross_entropy(logits.view(-1, 16), labels.view(-1)), "logits": logits}

    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]
    arguments = TrainingArguments("out", max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True)
    lowered = aten_recompute.lower(torch.jit.script(Loss()), "all")
    return {"torch": torch, "Trainer": Trainer, "arguments": arguments, "data": data, "lowered": lowered}


def region() -> Names:
    """A graph without control flow."""
    graph = torch._C.parse_ir("""
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu(%h)
  %z : Tensor = aten::sin(%y)
  return (%z)
""")
    return {"torch": torch, "aten_recompute": aten_recompute, "region": graph}


def train_script() -> Names:
    """A program ``train.py`` that trains a lowered module for one step."""
    Path("train.py").write_text(
        "import torch, aten_recompute\n"
        "model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()))\n"
        "aten_recompute.lower(model, 'budget', memory_budget=1.0)(torch.randn(4, 8)).sum().backward()\n"
    )
    return {}


def one_process() -> Names:
    """A process group of one process, the GPT, and the bytes that training may take."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{Path('rendezvous').absolute()}", rank=0, world_size=1)
    names = gpt()
    held = sum(each.numel() * each.element_size() for each in names["model"].parameters())
    return {
        **names,
        "DistributedDataParallel": DistributedDataParallel,
        "whole": 3 * held + (64 << 20),
    }


def potential_file() -> Names:
    """A potential in the file ``potential.pt``, for any number of atoms."""

    class Potential(nn.Module):
        def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
            positions.requires_grad_(True)
            offsets = positions.unsqueeze(0) - positions.unsqueeze(1)
            energy = torch.exp(-offsets.pow(2).sum(-1)).sum()
            gradient = torch.autograd.grad([energy], [positions])[0]
            assert gradient is not None
            return energy, -gradient

    torch.jit.script(Potential()).save("potential.pt")
    return {}


def spelled_out() -> Names:
    """``lower`` without the name of the package before it."""
    return {**gpt(), "lower": aten_recompute.lower}


def scaled_tanh() -> Names:
    """An operator of a library of the user's, without a gradient and without a kernel for meta tensors."""
    torch.library.define("mylib::scaled_tanh", "(Tensor x, float scale) -> Tensor")
    torch.library.impl("mylib::scaled_tanh", "cpu", lambda x, scale: x.tanh() * scale)
    return {"torch": torch, "aten_recompute": aten_recompute}


def pytest_test() -> Names:
    """What a test of a step uses, lowered."""
    import pytest

    names = resnet()
    model = aten_recompute.lower(torch.jit.script(names["model"]), "all")
    return {**names, "model": model, "pytest": pytest}


class Regression(nn.Module):
    """That of docs/tutorials/from_cpp.md."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.layers(x), y)


def cpp_files() -> Names:
    """The files that C++ snippets load. ``small.pt`` has a budget that no plan keeps."""
    names = gpt()
    save: Any = torch.jit.save
    save(names["model"], "model.pt")
    save(aten_recompute.lower(names["model"], "budget", memory_budget=0.5), "gpt.pt")
    save(aten_recompute.lower(names["model"], "budget", memory_budget="64KiB"), "small.pt")

    class Batch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("tokens", names["tokens"])
            self.register_buffer("targets", names["targets"])

    save(torch.jit.script(Batch()), "batch.pt")
    regression = torch.jit.script(Regression())
    save(regression, "regression.pt")
    save(aten_recompute.lower(regression, "budget", memory_budget=0.5), "lowered.pt")
    return {}
