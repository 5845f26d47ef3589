"""Graph breaks divide a method into regions that share one budget, which the peak of the method keeps."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy
from support.several_regions import (
    NETS,
    OUTSIDE_BYTES,
    Broken,
    Looping,
    Mlp,
    Printing,
    peak_bytes,
    plans,
    rows,
    step,
    unplanned_peak,
    variants,
    with_budget,
)

# Recorded paths would have one region.
pytestmark = pytest.mark.usefixtures("keeps_control_flow")


@pytest.mark.parametrize("accumulate", [False, True], ids=["new_gradients", "accumulate"])
@pytest.mark.parametrize("share", [0.7, 0.5])
@pytest.mark.parametrize("make", NETS)
def test_the_peak_of_the_method_keeps_the_budget(
    make: Callable[[], nn.Module], share: float, accumulate: bool, tracker: Tracker
) -> None:
    x = rows()
    budget = int(share * unplanned_peak(make, x, tracker))
    lowered = with_budget(make(), memory_budget=budget, accumulate=accumulate)
    peak = peak_bytes(lowered, x, tracker, accumulate)
    (plan,) = plans(lowered)
    assert plan["predicted_peak_bytes"] <= budget
    assert peak <= budget + OUTSIDE_BYTES
    assert abs(plan["predicted_peak_bytes"] - peak) <= 0.03 * peak
    if make is Broken and share == 0.7:  # each region alone would have kept everything
        assert max(variant["unplanned_peak_bytes"] for variant in variants(lowered)) <= budget
    assert peak > 0.5 * budget, "the plan is leaner than necessary"


class AsksForSizes(nn.Module):
    """A layer with a branch on a size, which only a call can decide, between any two of its operators."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        if y.size(0) > 1:
            y = self.up(y)
        else:
            y = torch.cat([y, y], -1)
        y = torch.nn.functional.gelu(y) if y.size(1) > 1 else y.tanh()
        y = torch.nn.functional.dropout(y, 0.1)
        if y.size(1) > 2:
            y = y.sigmoid() * y
        return x + self.down(y)


class ManyRegions(nn.Module):
    """Has many regions, copies and views between them, and residual connections over several of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([AsksForSizes() for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return (x * x).sum()


@pytest.mark.parametrize("share", [1.0, 0.85])
def test_a_method_of_many_regions_keeps_the_budget_and_equals_eager(share: float, tracker: Tracker) -> None:
    x = torch.randn(8, 32, 32)
    eager = ManyRegions()
    unplanned = peak_bytes(lowered_copy(eager, "none"), x, tracker)
    lowered = with_budget(eager, memory_budget=int(share * unplanned) + OUTSIDE_BYTES)
    peak = peak_bytes(lowered, x, tracker)
    (plan,) = plans(lowered)
    assert len(variants(lowered)) > 5
    assert abs(plan["predicted_peak_bytes"] - peak) <= 0.03 * peak
    assert abs(plan["unplanned_peak_bytes"] - unplanned) <= 0.03 * unplanned
    assert peak <= share * unplanned + 2 * OUTSIDE_BYTES
    for seed in (1, 2):
        torch.manual_seed(seed)
        loss = step(eager, x)
        torch.manual_seed(seed)
        assert torch.equal(step(lowered, x), loss)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


@pytest.mark.parametrize("make", NETS)
def test_nothing_is_recomputed_if_the_budget_allows_everything(make: Callable[[], nn.Module], tracker: Tracker) -> None:
    x = rows()
    unplanned = unplanned_peak(make, x, tracker)
    lowered = with_budget(make(), memory_budget=1.0)
    peak = peak_bytes(lowered, x, tracker)
    (plan,) = plans(lowered)
    assert abs(peak - unplanned) <= OUTSIDE_BYTES
    assert abs(plan["unplanned_peak_bytes"] - unplanned) <= OUTSIDE_BYTES
    assert not any(variant["recomputed"] for variant in variants(lowered))


@pytest.mark.parametrize("share", [0.9, 0.6])
@pytest.mark.parametrize("make", NETS)
def test_gradients_equal_eager(make: Callable[[], nn.Module], share: float) -> None:
    """The first call recomputes as much as it can; later calls follow the plan for all regions."""
    eager = make()
    lowered = with_budget(eager, memory_budget=share)
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        x = rows(64)
        assert torch.equal(step(lowered, x), step(eager, x))
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert any(variant["recomputed"] for variant in variants(lowered))


class Dropping(nn.Module):
    """Has random numbers, running statistics and two outputs, one of which a later region reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Mlp(16, 2)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.3)
        self.b = Mlp(16, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.drop(self.norm(self.a(x)))
        print("between")
        return h, self.b(self.drop(h))


def test_random_numbers_and_statistics_equal_eager(tracker: Tracker) -> None:
    eager = Dropping()
    lowered = with_budget(eager, memory_budget=0.7)
    x = rows(512)

    def run(module: nn.Module, seed: int) -> list[Tensor]:
        module.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        first, second = module(x)
        ((first * first).sum() + second.sum()).backward()
        return [first.detach(), second.detach(), torch.get_rng_state()]

    for seed in (1, 2):
        assert_same(run(lowered, seed), run(eager, seed))
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        assert_same(list(lowered.buffers()), list(eager.buffers()))
    (plan,) = plans(lowered)
    assert plan["predicted_peak_bytes"] <= 0.7 * plan["unplanned_peak_bytes"]


def test_calls_that_began_before_the_plan_was_made_equal_eager() -> None:
    eager = Broken()
    lowered = with_budget(eager, memory_budget=0.6)
    x, y = rows(64), rows(64)
    first = lowered(x)  # recomputes as much as it can; the plan for all regions is made at its end
    second = lowered(y)
    for loss, inputs in ((first, x), (second, y)):
        lowered.zero_grad(set_to_none=True)
        loss.backward()
        step(eager, inputs)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


def test_an_unreachable_budget_names_the_smallest() -> None:
    x = rows()
    lowered = with_budget(Broken(), memory_budget="1000")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="smallest that can be reached is") as raised:
            lowered(x)
    share = re.search(r"reached is [\d.]+ [KM]iB \(([\d.]+) of", str(raised.value))
    assert share is not None
    reachable = with_budget(Broken(), memory_budget=1.006 * float(share.group(1)))
    step(reachable, x)
    (plan,) = plans(reachable)
    assert plan["predicted_peak_bytes"] <= 1.006 * float(share.group(1)) * plan["unplanned_peak_bytes"]


@pytest.mark.lowered_only
def test_a_saved_module_keeps_the_budget(tmp_path: Path, tracker: Tracker) -> None:
    x = rows()
    lowered = with_budget(Broken(), memory_budget=0.6)
    step(lowered, x)
    lowered.save(str(tmp_path / "broken.pt"))
    loaded = torch.jit.load(str(tmp_path / "broken.pt"))
    assert torch.equal(step(loaded, x), step(lowered, x))
    assert_same([p.grad for p in loaded.parameters()], [p.grad for p in lowered.parameters()])
    assert peak_bytes(loaded, x, tracker) <= plans(lowered)[0]["unplanned_peak_bytes"] * 0.6 + OUTSIDE_BYTES


@pytest.mark.parametrize("make", [Broken, Printing, Looping])
def test_a_pinned_plan_tells_equal_regions_apart(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    x = rows()
    planned = with_budget(make(), memory_budget=0.55)
    step(planned, x)
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    pinned = lowered_copy(make(), plan=str(tmp_path / "plan.json"), cost_model="flops")
    for module in (pinned, pinned, planned):
        module.load_state_dict(planned.state_dict())
        step(module, x)
    assert_same([p.grad for p in pinned.parameters()], [p.grad for p in planned.parameters()])
    chosen = [[variant["saved"] for variant in variants(module)] for module in (pinned, planned)]
    assert chosen[0] == chosen[1]
    assert len({tuple(saved) for saved in chosen[0]}) > 1
    (figures,), (expected,) = plans(pinned), plans(planned)
    for key in ("predicted_peak_bytes", "predicted_seconds", "predicted_saved_bytes"):
        assert figures[key] == expected[key]


def test_several_threads_can_train_with_one_budget() -> None:
    eager = Broken()
    lowered = with_budget(eager, memory_budget=0.6)
    inputs = [rows(64) for _ in range(4)]
    results: dict[int, list[Tensor]] = {}

    def work(index: int) -> None:
        for _ in range(3):
            loss = lowered(inputs[index])
            results[index] = list(torch.autograd.grad(loss, list(lowered.parameters()), allow_unused=True))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        step(eager, inputs[i])
        assert_same(results[i], [p.grad for p in eager.parameters()])


class CountsItsSteps(nn.Module):
    """Has two regions, and sets an attribute, which comes last in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)
        self.register_buffer("mean", torch.zeros(16))
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        self.mean.mul_(0.5).add_(y.detach().mean(0))
        self.steps = self.steps + 1
        return torch.tanh(self.second(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_norms_stay_as_they_were_when_the_plan_is_made(dtype: torch.dtype) -> None:
    """Norms are fused for some types only. The plan for the method is made for the graph that was profiled."""
    eager = CountsItsSteps().to(dtype)
    lowered = with_budget(eager, memory_budget=0.9, unreachable="leanest")
    for _ in range(3):
        x = torch.randn(64, 16).to(dtype)
        assert_same([lowered(x).detach(), *lowered.buffers()], [eager(x).detach(), *eager.buffers()])
        lowered(x).sum().backward()
        eager(x).sum().backward()
        assert lowered.steps == eager.steps
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
