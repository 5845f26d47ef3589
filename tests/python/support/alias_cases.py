"""What the cases of test_aliasing.py are made with, and where they are."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

# Makes its inputs, calls the module, does what a caller may do; every tensor that somebody could look at.
Scenario = Callable[[nn.Module], list[Tensor]]
CASES: dict[str, tuple[Callable[[], nn.Module], Scenario]] = {}


def case(name: str, make: Callable[[], nn.Module]) -> Callable[[Scenario], Scenario]:
    def enter(scenario: Scenario) -> Scenario:
        assert name not in CASES
        CASES[name] = (make, scenario)
        return scenario

    return enter


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape or (4, 6)).requires_grad_()


def trained(output: Tensor, *watched: Tensor) -> list[Tensor]:
    """After a backward: the output, what is watched, and its gradients."""
    output.square().sum().backward()
    return [output, *watched, *[t.grad for t in watched if t.is_leaf]]


class Chain(nn.Module):
    """Some activations that are read again in the backward: the input, results of their own, a parameter."""

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
