"""Results of one method that share nothing, each with a backward of its own, without a retained graph."""

import pytest
import torch
from torch import Tensor, nn

from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy

SPECS = ["none", "all", {"strategy": "budget", "memory_budget": 0.7, "unreachable": "leanest"}]


class Towers(nn.Module):
    def __init__(self, shares_first: bool = False) -> None:
        super().__init__()
        self.shares_first = shares_first
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = torch.tanh(self.first(x))
        b = torch.exp(torch.tanh(self.second(a if self.shares_first else y)))
        return a * 2 + 1, torch.tanh(b), self.third(y).sin()


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for _, parameter in sorted(module.named_parameters())]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1], [[0, 2], 1]])
@pytest.mark.parametrize("spec", SPECS)
def test_each_result_has_a_backward(spec: object, order: list[int | list[int]]) -> None:
    eager = Towers()
    lowered = lowered_copy(eager, spec)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    for _ in range(3):
        for module in (eager, lowered):
            module.zero_grad(set_to_none=True)
            results = module(x, y)
            for each in order:
                chosen = each if isinstance(each, list) else [each]
                torch.stack([results[i].sum() for i in chosen]).sum().backward()
        assert_same(gradients(lowered), gradients(eager))


@pytest.mark.parametrize("spec", SPECS)
def test_a_second_backward_through_the_same_or_a_shared_graph_raises(spec: object) -> None:
    for module in (Towers(), lowered_copy(Towers(), spec)):
        results = module(torch.randn(4, 8), torch.randn(4, 8))
        results[1].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            results[1].sum().backward()
        results[2].sum().backward()
    for module in (Towers(shares_first=True), lowered_copy(Towers(shares_first=True), spec)):
        results = module(torch.randn(4, 8), torch.randn(4, 8))
        results[0].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            results[1].sum().backward()


def test_what_nobody_holds_is_released_with_the_first_backward(tracker: Tracker) -> None:
    lowered = lowered_copy(Towers(), "none")
    x, y = torch.randn(4000, 8), torch.randn(4000, 8)
    lowered(x, y)[0].sum().backward()
    before = tracker.live_bytes
    result = lowered(x, y)[0]
    result.sum().backward()
    assert tracker.live_bytes - before <= result.nbytes + 1024


def test_a_retained_graph_stays() -> None:
    eager = Towers()
    lowered = lowered_copy(eager, "all")
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    for module in (eager, lowered):
        module.zero_grad(set_to_none=True)
        results = module(x, y)
        results[0].sum().backward()
        results[1].sum().backward(retain_graph=True)
        results[1].sum().backward()
        results[2].sum().backward()
    assert_same(gradients(lowered), gradients(eager))


class TwoWays(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (x * 2).exp() * x, (w * 3).exp() * w


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_target_that_a_result_does_not_depend_on_frees_nothing(create_graph: bool) -> None:
    gradients = []
    for module in (TwoWays(), lowered_copy(TwoWays(), "all")):
        torch.manual_seed(0)
        x, w = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
        first, second = module(x, w)
        assert torch.autograd.grad(first.sum(), [w], allow_unused=True, create_graph=create_graph)[0] is None
        assert torch.autograd.grad(second.sum(), [x], allow_unused=True)[0] is None
        first.sum().backward()
        second.sum().backward()
        gradients.append((x.grad, w.grad))
    assert_same(gradients[0], gradients[1])


class Energy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(x) * x).sum()


class UsesEnergy(nn.Module):
    def forward(self, x: Tensor, energy: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(x * 0.5), x * energy


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_way_that_no_gradient_takes_may_be_freed(create_graph: bool) -> None:
    gradients = []
    for first, second in [(Energy(), UsesEnergy()), (lowered_copy(Energy(), "all"), lowered_copy(UsesEnergy(), "all"))]:
        torch.manual_seed(0)
        x = torch.randn(5, requires_grad=True)
        energy = first(x)
        energy.backward()
        # No gradient goes through the energy, whose graph is freed.
        result, product = second(x, energy)
        gradients.append((x.grad, *torch.autograd.grad(result.sum(), [x], create_graph=create_graph), product))
    assert_same(gradients[0], gradients[1])
