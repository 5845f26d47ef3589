"""What chooses an object or a value leaves a condition: calls that choose something else follow another path.

``docs/decisions/0045-what-a-path-depends-on.md`` lists the ways.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy, scripted_copy
from support.path_choices import CHOICES, Head, Tanh, TwoLayers

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "budget": {"strategy": "budget", "memory_budget": 0.9, "cost_model": "flops", "unreachable": "leanest"},
}


def trained(module: nn.Module, call: tuple[Any, ...]) -> list[Tensor | None]:
    call = copy.deepcopy(call)
    module.zero_grad(set_to_none=True)
    output = module(*call)
    (output * torch.linspace(0, 1, output.numel(), dtype=output.dtype).view_as(output)).sum().backward()
    named = sorted(module.named_parameters(remove_duplicate=False))
    # The gradient of a parameter that this call does not use may be None or zeros.
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for _, p in named]
    return [output.detach(), *gradients, *(each for each in call if isinstance(each, Tensor))]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", CHOICES)
def test_each_call_takes_what_it_chooses(name: str, strategy: str) -> None:
    make, calls = CHOICES[name]
    eager = make()
    lowered = lowered_copy(eager, STRATEGIES[strategy])
    for call in calls():
        assert_same(trained(lowered, call), trained(eager, call))


class OfAnInterface(nn.Module):
    head: Head

    def __init__(self) -> None:
        super().__init__()
        self.head, self.other = Tanh(), TwoLayers()  # type: ignore[assignment]
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.head.forward(x))


def test_a_submodule_of_an_interface_may_be_replaced() -> None:
    """Another class stands there in later calls."""
    eager = OfAnInterface()
    lowered = lowered_copy(eager, "none")
    for _ in range(2):
        x = torch.randn(3, 4)
        assert torch.equal(lowered(x), eager(x))
        eager.head, lowered.head = eager.other, lowered.other  # type: ignore[assignment]


class SameOrNot(nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.first, self.third = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second = self.first if tied else nn.Linear(4, 4)

    def forward(self, x: Tensor, count: int) -> Tensor:
        for _ in range(count):
            x = torch.tanh(self.second(self.first(x))) * 1.5
        return x + self.third(x)


@pytest.mark.parametrize("tied", [True, False])
def test_submodules_may_become_the_same_or_different(tied: bool) -> None:
    """The recorder knows objects by their address, so that one that it meets twice is read in one place."""
    eager = SameOrNot(tied)
    scripted = scripted_copy(eager)
    if tied:
        scripted.second = scripted.first
    lowered = lowered_copy(scripted, "none")
    for _ in range(3):
        x = torch.randn(3, 4)
        assert torch.equal(lowered(x, 2), eager(x, 2))
        eager.second, lowered.second = eager.third, lowered.third
