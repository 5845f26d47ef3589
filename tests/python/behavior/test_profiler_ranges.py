"""Blocks of torch.profiler.record_function in a method, as torch-pme and others have them."""

import copy

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, saved_and_loaded


class Ranges(nn.Module):
    """Ranges one after the other, nested, in a loop, in a branch, and one that has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Tensor, often: int) -> Tensor:
        with torch.profiler.record_function("first"):
            x = torch.tanh(self.layers[0](x))
        with torch.autograd.profiler.record_function("outer") as outer:
            for _ in range(often):
                with torch.profiler.record_function("inner " + outer.name):
                    x = torch.sigmoid(self.layers[1](x))
        if often > 1:
            with torch.profiler.record_function("last"), torch.no_grad():
                scale = self.layers[2](x).mean()
            x = x * scale
        return x.square().mean()


class RaisesInARange(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.profiler.record_function("checked"):
            y = x * 2
            if bool((x > 10).any()):
                raise ValueError("too large")
        return y.sin().sum()


def step(module: nn.Module, often: int) -> list[Tensor | None]:
    module.zero_grad(set_to_none=True)
    x = torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()
    loss = module(x, often)
    loss.backward()
    return [loss.detach(), x.grad, *(each.grad for each in module.parameters())]


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
def test_ranges_of_a_profiler_end_no_region(strategy: str) -> None:
    torch.manual_seed(0)
    module = Ranges()
    lowered = lowered_copy(module, strategy)
    for often in (1, 3, 1):
        assert_same(step(lowered, often), step(module, often))
        assert_same(step(saved_and_loaded(lowered), often), step(module, often))
    for specialization in aten_recompute.report(lowered)["methods"][0]["specialisations"]:
        assert (len(specialization["regions"]), specialization["breaks"]) == (1, [])


def test_a_range_is_left_where_an_exception_leaves_it() -> None:
    module = RaisesInARange()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), "all")
    for value, raises in ((1.0, False), (11.0, True), (2.0, False)):
        x = torch.full((3,), value, requires_grad=True)
        if raises:
            with pytest.raises(torch.jit.Error, match="too large"):
                lowered(x)
            continue
        assert_same([lowered(x)], [module(x)])


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_profiler_sees_the_operators(strategy: str) -> None:
    lowered = lowered_copy(Ranges(), strategy)
    step(lowered, 2)
    with torch.profiler.profile() as profile:
        step(lowered, 2)
    names = {event.key for event in profile.key_averages()}
    assert any("linear" in name or "addmm" in name for name in names)
    assert not any(name.startswith("inner") for name in names)
