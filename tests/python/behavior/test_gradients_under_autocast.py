"""Methods that ask for gradients under autocast are planned, and have the bits of eager PyTorch under it."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from support.helpers import assert_same


class Forces(nn.Module):
    """Calls ``energy`` and returns it with its gradient, which has a graph in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 8)
        self.norm = nn.LayerNorm(32)

    def energy(self, x: Tensor) -> Tensor:
        return self.second(F.silu(self.first(x))).sum()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        energy = self.energy(x)
        gradient = torch.autograd.grad([energy], [x], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


class Normed(Forces):
    def energy(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.norm(self.first(x)))).square().sum()


class Attends(Forces):
    def energy(self, x: Tensor) -> Tensor:
        h = self.first(x)
        weights = torch.softmax(h @ h.t(), dim=1)
        return self.second(weights @ h).sum()


class Gathers(Forces):
    """Sums over the neighbors that the distances choose."""

    def energy(self, x: Tensor) -> Tensor:
        i, j = ((x.unsqueeze(0) - x.unsqueeze(1)).square().sum(2).detach() < 12.0).nonzero().unbind(1)
        messages = F.silu(self.first(x[i] - x[j]))
        return self.second(torch.zeros_like(self.first(x)).to(messages.dtype).index_add(0, i, messages)).sum()


class Powers(Forces):
    """Autocast runs some of these operators in float32."""

    def energy(self, x: Tensor) -> Tensor:
        h = self.second(F.softplus(self.first(x)))
        return h.pow(3).sum() + torch.exp(-h).sum() + torch.linalg.vector_norm(h) + h.prod(1).sum()


class Convolves(Forces):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1)

    def energy(self, x: Tensor) -> Tensor:
        return torch.tanh(self.conv(x.t().unsqueeze(0))).sum()


class ReadsWeightsTwice(Forces):
    def energy(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(self.second(torch.sin(self.first(x)))))).sum()


class WithoutAutocastInside(Forces):
    """The operators run in float32, but eager PyTorch casts in their gradients, which autocast surrounds."""

    def energy(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return self.second(F.silu(self.first(x))).sum()


class AsksInsideOfABlock(Forces):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            energy = self.energy(x)
            gradient = torch.autograd.grad([energy], [x], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


class AsksBehindABlock(AsksInsideOfABlock):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            energy = self.energy(x)
        gradient = torch.autograd.grad([energy.float()], [x], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


MODULES = [
    *(Forces, Normed, Attends, Gathers, Powers, Convolves, ReadsWeightsTwice, WithoutAutocastInside),
    *(AsksInsideOfABlock, AsksBehindABlock),
]
OPTIONS: dict[str, dict[str, Any]] = {"none": {}, "all": {}, "budget": {"memory_budget": 0.6, "unreachable": "leanest"}}


def train(module: nn.Module, enabled: bool) -> list[Tensor | None]:
    seen: list[Tensor | None] = []
    for seed in range(3):
        module.zero_grad()
        x = torch.randn(12, 8, generator=torch.Generator().manual_seed(seed))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            energy, forces = module(x)
        seen += [energy.detach(), forces.detach()]
        if module.training:
            (energy.float().sum() + forces.float().square().sum()).backward()
            seen += [parameter.grad for parameter in module.parameters()]
    return seen


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("strategy", OPTIONS)
@pytest.mark.parametrize("make", MODULES)
def test_bits_are_those_of_eager_autocast(make: type[Forces], strategy: str, enabled: bool, training: bool) -> None:
    torch.manual_seed(0)
    eager = make().train(training)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), strategy, **OPTIONS[strategy])
    expected, actual = train(eager, enabled), train(lowered, enabled)
    assert_same(actual, expected)


def is_planned(module: torch.jit.ScriptModule) -> bool:
    specializations = aten_recompute.report(module)["methods"][0]["specialisations"]
    return all(region["variants"] for each in specializations for region in each["regions"])


@pytest.mark.parametrize("make", [Forces, Normed, Attends, Gathers, Convolves, ReadsWeightsTwice, AsksBehindABlock])
def test_forces_are_planned(make: type[Forces]) -> None:
    lowered = aten_recompute.lower(torch.jit.script(make()), "none")
    train(lowered, enabled=True)
    assert is_planned(lowered)
