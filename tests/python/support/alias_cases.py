"""The cases of test_aliasing.py; importing ``alias_cases_layouts`` and ``alias_cases_writes`` adds them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# A scenario makes inputs, calls the module, and does what a caller may do. It returns every tensor that a caller could
# look at. The module is Any, since scenarios use its attributes.
Scenario = Callable[[Any], list[Tensor | None]]
CASES: dict[str, tuple[Callable[[], nn.Module], Scenario]] = {}


def case(name: str, make: Callable[[], nn.Module]) -> Callable[[Scenario], Scenario]:
    def enter(scenario: Scenario) -> Scenario:
        assert name not in CASES
        CASES[name] = (make, scenario)
        return scenario

    return enter


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape or (4, 6)).requires_grad_()


def trained(output: Tensor, *watched: Tensor) -> list[Tensor | None]:
    """Runs a backward, and returns the output, the watched tensors and the gradients of those that are leaves."""
    output.square().sum().backward()
    return [output, *watched, *[t.grad for t in watched if t.is_leaf]]


class Chain(nn.Module):
    """The backward reads several activations: the input, results of operators, a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x))
        return torch.sigmoid(h * self.scale) * x


class WritesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x))
        x.mul_(2.0)
        return h * 3.0 + x
