"""Numbers that a training loop sets on the module: temperatures, weights of losses, counts."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy


class Annealed(nn.Module):
    """Reads a float and an int that change from step to step, and a flag that has two values."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer = nn.Linear(16, 16)
        self.value = 1.0
        self.count = 3
        self.is_noisy = False

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x)
        if self.kind == "temperature":
            h = (h / self.value).softmax(1)
        elif self.kind == "weight of a loss":
            return h.square().mean() + self.value * h.abs().mean()
        elif self.kind == "probability":
            h = F.dropout(h, 0.5 * self.value)
        elif self.kind == "gumbel":
            h = F.gumbel_softmax(h, tau=self.value)
        elif self.kind == "branch":
            h = h * 2 if self.value > 0.6 else h.sin()
        elif self.kind == "count":
            h = h.topk(self.count, 1)[0] + self.count
        elif self.kind == "loop":
            for _ in range(self.count):
                h = torch.tanh(self.layer(h))
        elif self.kind == "flag":
            h = h + torch.randn_like(h) if self.is_noisy else h / self.value
        else:
            x.requires_grad_(True)
            energy = (torch.tanh(self.layer(x)) / self.value).sum()
            gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
            assert gradient is not None
            return energy + gradient.square().sum() * self.value
        return h.square().mean()


def anneal(module: Any, step: int) -> None:
    module.value = 1.0 - 0.08 * step
    module.count = 1 + step % 5
    module.is_noisy = module.kind == "flag" and step % 2 == 1


@pytest.mark.parametrize(
    ("kind", "specializations"),
    [
        ("temperature", 1),
        ("weight of a loss", 1),
        ("probability", 1),
        ("gumbel", 1),
        ("count", 1),
        ("forces", 1),
        ("branch", 2),
        ("flag", 2),
        ("loop", 5),  # one for each number of iterations
    ],
)
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_number_that_changes_in_each_step_is_read_in_each_call(
    kind: str, specializations: int, strategy: str
) -> None:
    torch.manual_seed(0)
    eager = Annealed(kind)
    lowered = lowered_copy(eager, strategy)
    x = torch.randn(8, 16)
    for step in range(10):
        results = []
        for module in (eager, lowered):
            anneal(module, step)
            module.zero_grad(set_to_none=True)
            torch.manual_seed(step)
            loss = module(x.clone())
            loss.backward()
            results.append([loss.detach(), torch.rand(1), module.layer.weight.grad, module.layer.bias.grad])
        assert_same(results[1], results[0])
    [method] = aten_recompute.report(lowered)["methods"]
    assert len(method["specialisations"]) == specializations
    assert all(len(each["regions"]) == 1 for each in method["specialisations"])


def test_two_values_are_compiled_for() -> None:
    """A value of its own in evaluation is not worth reading in each call."""
    module = Annealed("temperature")
    lowered = lowered_copy(module, "all")
    for step in range(6):
        lowered.value = 0.5 if step % 2 else 1.0
        lowered(torch.randn(2, 16)).backward()
    [method] = aten_recompute.report(lowered)["methods"]
    assert len(method["specialisations"]) == 2


class Signed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.value = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.copysign(self.layer(x), torch.tensor(self.value)).sum()


def test_zeros_of_both_signs_are_different_values() -> None:
    eager = Signed()
    lowered = lowered_copy(eager, "all")
    x = torch.randn(3, 4)
    for value in (0.0, -0.0, 1.0, -0.0, float("nan"), 0.0, -0.0):
        results = []
        for module in (eager, lowered):
            module.value = value
            results.append([module(x).detach()])
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0, equal_nan=True)


class Repeated(nn.Module):
    """How much memory a call takes depends on a number."""

    def __init__(self, is_argument: bool) -> None:
        super().__init__()
        self.is_argument = is_argument
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.count = 1

    def forward(self, x: Tensor, count: int) -> Tensor:
        if not self.is_argument:
            count = self.count
        h = torch.tanh(self.first(x)).repeat(count, 1)
        return torch.tanh(self.second(h)).square().mean()


@pytest.mark.parametrize("is_argument", [False, True])
def test_a_number_that_decides_sizes_is_planned_for(is_argument: bool, tracker: Tracker) -> None:
    eager = Repeated(is_argument)
    x = torch.randn(128, 32)

    def peak_of(module: Any, count: int) -> int:
        module.zero_grad(set_to_none=True)
        module.count = count
        with tracker.measure_peak() as peak:
            module(x, count).backward()
        return peak.bytes

    budget = int(0.6 * max(peak_of(eager, 32) for _ in range(2)))
    lowered = lowered_copy(eager, "budget", memory_budget=f"{budget}B")
    assert max(peak_of(lowered, count) for count in (1, 2, 4, 32, 32, 8, 32)) <= budget


@pytest.mark.lowered_only  # a module that was saved is not enabled when it is loaded
def test_attributes_of_submodules_and_of_saved_modules_change(tmp_path: Path) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Annealed("temperature")
            self.value = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.value

    eager = Outer()
    torch.jit.save(lowered_copy(eager, "all"), tmp_path / "module.pt")
    lowered = torch.jit.load(tmp_path / "module.pt")
    scripted = torch.jit.script(copy.deepcopy(eager))
    aten_recompute.enable(scripted, "all")
    x = torch.randn(4, 16)
    for step in range(6):
        results = []
        for module in (eager, lowered, scripted):
            module.inner.value = 1.0 - 0.1 * step
            module.value = 2.0 + step
            module.zero_grad(set_to_none=True)
            module(x).backward()
            results.append([module.inner.layer.weight.grad])
        assert_same(results[1], results[0])
        assert_same(results[2], results[0])
    for module in (lowered, scripted):
        [method] = aten_recompute.report(module)["methods"]
        assert len(method["specialisations"]) == 1
