"""Methods that ask for gradients under autocast: they have the bits of eager PyTorch under it.

With exact=True, gradients with a graph run under ordinary autograd there: in larger models than these, the order of
sums decides the last bits of bfloat16.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.memory import Tracker
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


class Shares(Forces):
    """Autocast's cache keeps the cast of the leaf, so that its gradients are added in bfloat16."""

    def energy(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.first(x)) * self.first(x)).sum()


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
    *(Forces, Normed, Attends, Gathers, Powers, Shares, Convolves, ReadsWeightsTwice, WithoutAutocastInside),
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
    expected = train(eager, enabled)
    # With a budget, exact=False runs operators in slices.
    for exact in (True, False) if enabled and strategy != "budget" else (True,):
        module = torch.jit.script(copy.deepcopy(eager))
        lowered = aten_recompute.lower(module, strategy, exact=exact, **OPTIONS[strategy])
        assert_same(train(lowered, enabled), expected)


def is_planned(module: torch.jit.ScriptModule) -> bool:
    specializations = aten_recompute.report(module)["methods"][0]["specialisations"]
    return all(region["variants"] for each in specializations for region in each["regions"])


PLANNED = [Forces, Normed, Attends, Gathers, Shares, Convolves, ReadsWeightsTwice, AsksBehindABlock]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", PLANNED)
def test_forces_are_planned(make: type[Forces], training: bool) -> None:
    lowered = aten_recompute.lower(torch.jit.script(make().train(training)), "none", exact=not training)
    train(lowered, enabled=True)
    assert is_planned(lowered)


@pytest.mark.parametrize("make", [WithoutAutocastInside, AsksInsideOfABlock])
def test_gradients_that_autocast_casts_are_not_planned(make: type[Forces]) -> None:
    lowered = aten_recompute.lower(torch.jit.script(make().eval()), "none")
    train(lowered, enabled=True)
    assert not is_planned(lowered)


class Deep(Forces):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(6)])

    def energy(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for layer in self.layers:
            h = h + F.silu(layer(h))
        return self.second(h).sum()


def peak_of(module: nn.Module, x: Tensor, tracker: Tracker, warm_up: int) -> int:
    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            energy, forces = module(x)
        if module.training:
            loss = energy.float() + forces.float().square().sum()
            del energy, forces
            loss.backward()

    for _ in range(warm_up):
        step()
    with tracker.measure_peak() as peak:
        step()
    return peak.bytes


@pytest.mark.parametrize("training", [True, False])
def test_forces_keep_a_budget_under_autocast(training: bool, tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = Deep().train(training)
    for parameter in eager.parameters():
        parameter.grad = torch.zeros_like(parameter)
    x = torch.randn(4096, 8)
    budget = int(0.6 * peak_of(eager, x, tracker, 3))
    module = torch.jit.script(copy.deepcopy(eager))
    lowered = aten_recompute.lower(module, "budget", memory_budget=budget, accumulate=True, exact=not training)
    assert max(peak_of(lowered, x, tracker, warm_up) for warm_up in (0, 0, 3)) <= budget
