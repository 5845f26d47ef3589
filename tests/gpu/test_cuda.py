"""What a module does on a GPU. The tests need a CUDA device and are skipped without one; ``tools/gpu.sh`` runs them."""

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aten_recompute
from benchmarks import models

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "budget": {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest"},
    "leanest": {"strategy": "budget", "memory_budget": 0.01, "unreachable": "leanest", "cost_model": "flops"},
}


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that add in any order would make eager PyTorch differ from itself."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.empty_cache()


def step(
    workload: models.Workload, module: nn.Module, seed: int, around: Callable[[], Any] = nullcontext, scale: float = 1.0
) -> dict[str, Tensor]:
    """Returns loss, gradients, buffers and the states of both generators after a step from a seed."""
    torch.manual_seed(seed)
    module.zero_grad(set_to_none=True)
    with around():
        loss = workload.loss(module)
    torch.autograd.backward([loss * scale])
    seen = {"loss": loss.detach()}
    seen |= {name: each.grad.clone() for name, each in module.named_parameters() if each.grad is not None}
    seen |= {name: each.clone() for name, each in module.named_buffers()}
    return seen | {"generator": torch.cuda.get_rng_state(), "generator of the CPU": torch.get_rng_state()}


def differences(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[str]:
    missing = sorted(set(ours) ^ set(theirs))
    return missing + [name for name in theirs if name in ours and not torch.equal(ours[name], theirs[name])]


AROUND: dict[str, tuple[Callable[[], Any], float]] = {
    "float32": (nullcontext, 1.0),
    "bfloat16": (lambda: torch.autocast("cuda", dtype=torch.bfloat16), 1.0),
    "float16": (lambda: torch.autocast("cuda", dtype=torch.float16), 1024.0),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", models.NAMES)
def test_steps_have_the_bits_of_eager(name: str, strategy: str, around: str) -> None:
    workload = models.make(name, "small").to("cuda")
    context, scale = AROUND[around]
    eager, again = copy.deepcopy(workload.module), copy.deepcopy(workload.module)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES[strategy])
    for seed in range(4):
        expected = step(workload, eager, seed, context, scale)
        unstable = differences(step(workload, again, seed, context, scale), expected)
        different = differences(step(workload, lowered, seed, context, scale), expected)
        assert [each for each in different if each not in unstable] == []


def peak_of(workload: models.Workload, module: nn.Module, seed: int, around: Callable[[], Any]) -> int:
    """Returns the peak of a step, without what the allocator adds to a block because it has a larger one."""
    torch.manual_seed(seed)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    rest = torch.cuda.memory_stats()["requested_bytes.all.current"]
    with around():
        loss = workload.loss(module)
    torch.autograd.backward([loss])
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"] - rest)


def check_budget(name: str, share: float, around: Callable[[], Any] = nullcontext, **options: Any) -> None:
    workload = models.make(name, "full").to("cuda")
    eager = copy.deepcopy(workload.module)
    for seed in range(2):
        eager.zero_grad(set_to_none=False)
        peak = peak_of(workload, eager, seed, around)
    budget = int(share * peak)
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(workload.module)), strategy="budget", memory_budget=budget, accumulate=True,
        release_outputs=workload.release_outputs, unreachable="leanest", **options,
    )  # fmt: skip
    peaks = []
    for seed in range(6):
        lowered.zero_grad(set_to_none=False)
        peaks.append(peak_of(workload, lowered, seed, around))
    specialization = aten_recompute.report(lowered)["methods"][0]["specialisations"][-1]
    variant = specialization["regions"][-1]["variants"][-1]
    predicted = variant["predicted_peak_bytes"]
    details = f"peaks {peaks}, predicted {predicted}, budget {budget}, eager {peak}, {variant['peak_operator']}"
    assert peaks[-1] <= max(budget, predicted), details
    assert abs(peaks[-1] - predicted) <= 0.03 * predicted, details


@pytest.mark.parametrize("share", [0.5, 0.3])
@pytest.mark.parametrize("name", models.NAMES)
def test_measured_peaks_keep_the_budget_and_equal_the_prediction(name: str, share: float) -> None:
    check_budget(name, share)


@pytest.mark.parametrize("around", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["gpt", "bert", "resnet50"])
def test_budgets_under_autocast(name: str, around: str) -> None:
    check_budget(name, 0.5, AROUND[around][0])


@pytest.mark.parametrize("name", ["mlp_loss", "gpt"])
def test_budgets_with_slices(name: str) -> None:
    check_budget(name, 0.1, exact=False)


def test_a_module_that_is_enabled_in_place() -> None:
    workload = models.make("gpt", "small").to("cuda")
    scripted = torch.jit.script(copy.deepcopy(workload.module))
    aten_recompute.enable(scripted, **STRATEGIES["budget"])
    for seed in range(3):
        assert differences(step(workload, scripted, seed), step(workload, workload.module, seed)) == []


def test_a_graph_that_is_kept_goes_backward_twice() -> None:
    workload = models.make("gpt", "small").to("cuda")
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES["all"])
    results = []
    for module in (workload.module, lowered):
        torch.manual_seed(0)
        loss = workload.loss(module)
        torch.autograd.backward([loss], retain_graph=True)
        torch.autograd.backward([loss])
        results.append({name: each.grad for name, each in module.named_parameters() if each.grad is not None})
    assert differences(*results) == []


class Moves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(32, 64)
        self.b = nn.Linear(64, 16)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        h = torch.relu(self.a(x.to(self.a.weight.device)))
        h = F.dropout(h, 0.5, True) * scale  # a scalar of the CPU
        result: Tensor = self.b(h).float().cpu().sum(1)
        return result


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tensors_move_between_devices(strategy: str) -> None:
    module = Moves().cuda()
    workload = models.Workload(
        "moves", module, (torch.randn(64, 32), torch.tensor(1.5)), lambda out: out.square().sum()
    )
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), **STRATEGIES[strategy])
    for seed in range(3):
        assert differences(step(workload, lowered, seed), step(workload, module, seed)) == []


@pytest.mark.parametrize("strategy", ["all", "budget"])
def test_lowered_before_it_moves(strategy: str) -> None:
    workload = models.make("gpt", "small")
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES[strategy])
    step(workload, lowered, 0)
    lowered.to("cuda")
    workload = workload.to("cuda")
    for seed in range(3):
        assert differences(step(workload, lowered, seed), step(workload, workload.module, seed)) == []


def test_a_saved_module_loads_on_either_device(tmp_path: Path) -> None:
    workload = models.make("resnet50", "small").to("cuda")
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES["budget"])
    lowered.save(str(tmp_path / "module.pt"))
    load: Any = torch.jit.load
    loaded = load(str(tmp_path / "module.pt"), map_location="cpu")
    assert {each.device.type for each in loaded.parameters()} == {"cpu"}
    for module in (loaded.to("cuda"), load(str(tmp_path / "module.pt"), map_location="cuda")):
        eager = copy.deepcopy(workload.module)
        for seed in range(3):
            assert differences(step(workload, module, seed), step(workload, eager, seed)) == []


@pytest.mark.parametrize("strategy", ["all", "budget"])
def test_steps_on_another_stream(strategy: str) -> None:
    workload = models.make("gpt", "small").to("cuda")
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES[strategy])
    make_stream: Any = torch.cuda.Stream
    stream = make_stream()
    stream.wait_stream(torch.cuda.current_stream())
    for seed in range(4):
        with torch.cuda.stream(stream):
            ours = step(workload, lowered, seed)
        torch.cuda.current_stream().wait_stream(stream)
        assert differences(ours, step(workload, workload.module, seed)) == []


def test_threads_that_train() -> None:
    results: dict[int, list[str]] = {}

    def train(index: int) -> None:
        workload = models.make("unet", "small", seed=index).to("cuda")
        lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES["all"])
        results[index] = []
        for seed in range(4):
            ours, theirs = step(workload, lowered, seed), step(workload, workload.module, seed)
            results[index] += [each for each in differences(ours, theirs) if "generator" not in each]

    threads = [threading.Thread(target=train, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {index: [] for index in range(4)}


def test_second_derivatives() -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).double().cuda()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), **STRATEGIES["all"])
    results = []
    for each in (module, lowered):
        torch.manual_seed(0)
        x = torch.randn(8, 16, device="cuda", dtype=torch.double, requires_grad=True)
        (gradient,) = torch.autograd.grad(each(x).sum(), x, create_graph=True)
        torch.autograd.backward([gradient.square().sum()])
        results.append([x.grad, *[p.grad for p in each.parameters()]])
    for ours, theirs in zip(*reversed(results), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_scaler_skips_a_step_as_in_eager() -> None:
    workload = models.make("mlp", "small").to("cuda")
    states = []
    for module in (workload.module, aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), "all")):
        optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=2)
        for seed in range(6):
            torch.manual_seed(seed)
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = workload.loss(module)
            torch.autograd.backward([scaler.scale(loss)])
            scaler.step(optimizer)
            scaler.update()
        states.append(
            {name: each.clone() for name, each in module.named_parameters()}
            | {"scale": torch.tensor(scaler.get_scale())}
        )
    assert differences(*states) == []


def test_memory_that_runs_out_is_an_error_and_the_next_step_is_right() -> None:
    workload = models.make("gpt", "small").to("cuda")
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES["all"])
    for seed in range(3):
        step(workload, lowered, seed)
    large = models.Workload(
        "gpt", workload.module, tuple(each.repeat(512, 1) for each in workload.inputs), workload.loss_fn
    )
    alive = []
    for _ in range(3):
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (64 << 20)) / total)
        with pytest.raises((torch.OutOfMemoryError, RuntimeError), match="out of memory"):
            step(large, lowered, 0)
        torch.cuda.set_per_process_memory_fraction(1.0)
        lowered.zero_grad(set_to_none=True)
        gc.collect()
        alive.append(torch.cuda.memory_allocated())
    assert alive[1:] == alive[:1] * 2
    for seed in range(3):
        assert differences(step(workload, lowered, seed), step(workload, workload.module, seed)) == []


def test_without_gradients_and_in_evaluation() -> None:
    workload = models.make("resnet50", "small").to("cuda")
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(workload.module)), **STRATEGIES["budget"])
    for seed in range(3):
        step(workload, lowered, seed)
        step(workload, workload.module, seed)
    for module in (lowered, workload.module):
        module.eval()
    with torch.no_grad():
        assert torch.equal(workload.loss(lowered), workload.loss(workload.module))
    for module in (lowered, workload.module):
        module.train()
    assert differences(step(workload, lowered, 9), step(workload, workload.module, 9)) == []
