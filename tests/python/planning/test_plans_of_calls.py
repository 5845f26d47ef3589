"""Other branches, frozen parameters and larger inputs get plans of their own; other calls use existing plans."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy
from support.several_regions import (
    OUTSIDE_BYTES,
    Broken,
    Looping,
    Mlp,
    peak_bytes,
    plans,
    rows,
    step,
    variants,
    with_budget,
)

# Recorded paths would have one region.
pytestmark = pytest.mark.usefixtures("keeps_control_flow")


class Branching(nn.Module):
    """The caller decides which branch is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Mlp(16, 3)
        self.b = Mlp(16, 3)
        self.c = Mlp(16, 6)

    def forward(self, x: Tensor, long: int) -> Tensor:
        x = self.a(x)
        if long > 0:
            x = self.c(x)
        else:
            x = self.b(x)
        print("between")
        return self.a(x).sum()


def test_each_branch_gets_a_plan_of_its_own() -> None:
    """A call without a plan recomputes as much as it can. When it is repeated, it gets a plan."""
    eager = Branching()
    lowered = with_budget(eager, memory_budget=0.6)
    x = rows(64)
    counts = []
    for long in (0, 0, 1, 1, 1, 0, 0, 1, 0, 1):
        for module in (lowered, eager):
            module.zero_grad(set_to_none=True)
            module(x, long).backward()
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        counts.append(len(plans(lowered)))
    assert counts == [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]


def test_frozen_layers_are_planned_again() -> None:
    eager = Broken()
    lowered = with_budget(eager, memory_budget=0.7)
    x = rows(64)
    step(lowered, x)
    assert len(plans(lowered)) == 1
    for module in (eager, lowered):
        for parameter in module.a.parameters():
            parameter.requires_grad_(False)
    for _ in range(3):
        assert torch.equal(step(lowered, x), step(eager, x))
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert len(plans(lowered)) == 2


@pytest.mark.parametrize("make", [Broken, Looping, lambda: Whole()], ids=["broken", "looping", "one_region"])
def test_larger_inputs_get_another_plan(make: Callable[[], nn.Module], tracker: Tracker) -> None:
    eager = make()
    small, large = rows(1024), rows(2048)
    budget = int(0.6 * peak_bytes(lowered_copy(eager, "none"), large, tracker))
    lowered = with_budget(eager, memory_budget=budget)
    counts = []
    for x in (small, large, small, large, rows(1500)):
        assert peak_bytes(lowered, x, tracker) <= budget + OUTSIDE_BYTES
        counts.append(len(variants(lowered)))
    # The first two inputs get a plan each. Smaller or repeated inputs get none.
    assert counts[1] == 2 * counts[0]
    assert counts[2:] == [counts[1]] * 3
    assert peak_bytes(with_budget(eager, memory_budget=10 * budget), large, tracker) > budget + OUTSIDE_BYTES


class Whole(Mlp):
    def __init__(self) -> None:
        super().__init__(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(torch.sigmoid(layer(x)))
        return (x * x).sum()


def test_smaller_inputs_need_no_other_plan() -> None:
    lowered = with_budget(Whole(), memory_budget="1GiB")
    step(lowered, rows(64))
    step(lowered, rows(32))
    assert len(variants(lowered)) == 1


def test_plans_for_eight_shapes_are_kept() -> None:
    lowered = with_budget(Whole(), memory_budget=1.0, of="largest")
    for count in range(1, 13):
        step(lowered, rows(count))
    assert len(variants(lowered)) == 8


def test_a_budget_in_bytes_with_room_needs_one_plan() -> None:
    lowered = with_budget(Whole(), memory_budget="1GiB")
    for count in range(1, 13):
        step(lowered, rows(count))
    assert len(variants(lowered)) == 1
