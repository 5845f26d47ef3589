"""A budget covers the whole path of a call: across branches, loops and containers."""

from collections.abc import Callable
from typing import Final

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy
from support.several_regions import Broken, Looping, peak_bytes, rows


class CellOverTime(nn.Module):
    """A cell in a loop over time, whose states are kept in a list, with a branch on the place."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h, c = torch.zeros(x.size(0), 64), torch.zeros(x.size(0), 64)
        states: list[Tensor] = []
        for t in range(x.size(1)):
            step = x[:, t]
            if t % 3 == 0:
                step = torch.tanh(step) * 1.5
            h, c = self.cell(step, (h, c))
            states.append(torch.relu(h * 2.0))
        return torch.stack(states).pow(2).mean()


class DictOfFeatures(nn.Module):
    """Layers that read and write a dict, as models of molecules do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        features = {"x": x}
        for layer in self.layers:
            y = torch.tanh(layer(features["x"]))
            if y.size(0) > 1:
                features["last"] = y
            features["x"] = features["last"] * torch.sigmoid(y)
        return features["x"].sum()


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "branch_on_data": (Broken, rows),
    "loop": (Looping, rows),
    "cell_over_time": (CellOverTime, lambda: torch.randn(256, 12, 64)),
    "dict_of_features": (DictOfFeatures, lambda: torch.randn(2000, 64)),
}


@pytest.mark.parametrize("name", CASES)
def test_half_of_the_memory_is_kept(name: str, tracker: Tracker) -> None:
    make, inputs = CASES[name]
    eager, x = make(), inputs()
    lowered = lowered_copy(eager, "budget", memory_budget=0.5, accumulate=True)
    measured = peak_bytes(lowered, x, tracker, accumulate=True)
    assert measured <= 0.5 * peak_bytes(lowered_copy(eager, "none"), x, tracker, accumulate=True)
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (region,) = specialization["regions"]
    variant = region["variants"][-1]
    assert not variant["on_tape"]
    assert variant["predicted_peak_bytes"] == pytest.approx(measured, rel=0.03)
    for module in (eager, lowered):
        module.zero_grad(set_to_none=True)
        module(x).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


class Checked(nn.Module):
    """Layers that refuse what is no number, before or after they have run, perhaps in a loop."""

    checks_first: Final[bool]
    loops: Final[bool]

    def __init__(self, checks_first: bool, loops: bool) -> None:
        super().__init__()
        self.checks_first = checks_first
        self.loops = loops
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        if self.checks_first and bool(x.isnan().any()):
            raise ValueError("no number")
        for layer in self.layers:
            x = torch.tanh(torch.sigmoid(layer(x)))
        if self.loops:
            for i in range(x.size(1) // 32):
                x = torch.tanh(x * (i + 0.5))
        if not self.checks_first:
            assert not bool(x.isnan().any()), "no number"
        return x.sum()


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("checks_first", [True, False])
@pytest.mark.parametrize("order", ["bad good", "good bad good", "bad bad good bad good", 10 * "bad " + "good"])
def test_a_call_that_raises_leaves_the_others_their_plan(
    order: str, checks_first: bool, loops: bool, tracker: Tracker
) -> None:
    eager, x = Checked(checks_first, loops), torch.randn(600, 64)
    none = peak_bytes(lowered_copy(eager, "none"), x, tracker, accumulate=True)
    lowered = lowered_copy(eager, "budget", memory_budget=none // 2, accumulate=True)
    for each in order.split():
        if each == "good":
            assert peak_bytes(lowered, x, tracker, accumulate=True) <= none // 2
            continue
        with pytest.raises(torch.jit.Error, match="no number"):
            lowered(torch.full_like(x, float("nan")))
    for module in (eager, lowered):
        module.zero_grad(set_to_none=True)
        module(x).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


class Remembering(nn.Module):
    """Layers that mix in what a buffer had before the call, and then write to it."""

    adds: Final[bool]
    multiplies: Final[bool]
    memory: Tensor

    def __init__(self, adds: bool, multiplies: bool) -> None:
        super().__init__()
        self.adds = adds
        self.multiplies = multiplies
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])
        self.register_buffer("memory", torch.randn(2000, 64))

    def forward(self, x: Tensor) -> Tensor:
        before = self.memory.clone()
        for layer in self.layers:
            x = torch.tanh(layer(x))
        if self.adds:
            self.memory.mul_(0.9).add_(x.detach(), alpha=0.1)
        else:
            self.memory.copy_(x.detach())
        assert not bool(x.isnan().any()), "no number"
        # A product needs both factors in its backward, a sum none.
        mixed = x * before if self.multiplies else x + before * 0.1
        return torch.tanh(mixed).square().mean()


@pytest.mark.parametrize("multiplies", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_a_buffer_that_is_read_and_then_written_is_part_of_the_plan(
    adds: bool, multiplies: bool, tracker: Tracker
) -> None:
    eager, x = Remembering(adds, multiplies), torch.randn(2000, 64)
    budget = int(0.7 * peak_bytes(lowered_copy(eager, "none"), x, tracker, accumulate=True))
    lowered = lowered_copy(eager, "budget", memory_budget=budget, accumulate=True)
    for parameter in lowered.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(3):  # from the first step on
        with tracker.measure_peak() as peak:
            lowered(x).backward()
        assert peak.bytes <= budget
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (variant,) = specialization["regions"][0]["variants"]
    assert variant["predicted_peak_bytes"] == pytest.approx(peak.bytes, rel=0.03)
    lowered.load_state_dict(eager.state_dict())
    for module in (eager, lowered):
        module.zero_grad(set_to_none=True)
        module(x).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert_same(list(lowered.buffers()), list(eager.buffers()))
    for module in (eager, lowered):
        with pytest.raises((AssertionError, torch.jit.Error), match="no number"):
            module(torch.full_like(x, float("nan")))
    # Both have written to it before they raised.
    assert all(bool(memory.isnan().all()) for memory in (*eager.buffers(), *lowered.buffers()))
