"""Gradients of gradients are added in the order of eager PyTorch, so that they have its bits."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same


class Forces(nn.Module):
    """Calls ``energy`` and returns it with its gradient. Each class below reads some value several times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.plain = nn.Linear(8, 8, bias=False)

    def energy(self, x: Tensor) -> Tensor:
        return self.first(x).sin().sum()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_()
        energy = self.energy(x)
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        return energy, -gradient


class Sum(Forces):
    """The gradient of a sum goes to both operands as it is."""

    def energy(self, x: Tensor) -> Tensor:
        return (self.first(x) * x + x).sin().sum()


class SumOfProducts(Forces):
    def energy(self, x: Tensor) -> Tensor:
        return (self.first(x) * x + self.second(x) * x).sin().sum()


class BroadcastProducts(Forces):
    def energy(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return (h.sum(1, keepdim=True) * x + x[:, :1] * h).sin().sum()


class WeightReadTwice(Forces):
    """A linear layer reads its weight through a view, which adds up what comes from this layer."""

    def energy(self, x: Tensor) -> Tensor:
        return (self.first(self.first(x).tanh()) * x).sin().sum()


class WeightReadThreeTimes(Forces):
    def energy(self, x: Tensor) -> Tensor:
        h = self.plain(self.plain(x).sin())
        return (h + self.plain(x.cos())).sin().sum()


class NarrowRows(Forces):
    """The input of a layer has a dimension of size 1, and is no matrix in memory."""

    def energy(self, x: Tensor) -> Tensor:
        return (self.plain(x[:, :1]) + self.first(x[:, :1]) + x.detach()).sin().sum()


class MatrixProducts(Forces):
    def energy(self, x: Tensor) -> Tensor:
        return torch.matmul(torch.matmul(x.transpose(1, 2), x), self.first.weight).sin().sum()


class Split(Forces):
    def energy(self, x: Tensor) -> Tensor:
        a, b = torch.split(self.first(x), 4, dim=-1)
        return (a + b * x[:, :, :4] + b * b).sin().sum()


def train(module: nn.Module, x: Tensor) -> list[Tensor | None]:
    module.zero_grad()
    x = x.clone()
    energy, forces = module(x)
    ((energy - 0.1) ** 2 + ((forces - 0.1) ** 2).sum()).backward()
    return [energy.detach(), forces.detach(), x.grad, *(each.grad for each in module.parameters())]


@pytest.mark.parametrize("strategy", ["none", "all", "budget"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "network",
    [Sum, SumOfProducts, BroadcastProducts, WeightReadTwice, WeightReadThreeTimes, NarrowRows, MatrixProducts, Split],
)
def test_gradients_have_the_bits_of_eager(network: type[Forces], dtype: torch.dtype, strategy: str) -> None:
    net = network().to(dtype)
    options: dict[str, Any] = {"memory_budget": 0.7, "unreachable": "leanest"} if strategy == "budget" else {}
    lowered = aten_recompute.lower(torch.jit.script(net), strategy, **options)
    for _ in range(4):
        x = torch.randn(5, 3, 8, dtype=dtype)
        assert_same(train(lowered, x), train(net, x))
