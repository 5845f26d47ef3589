"""Methods that mark leaves more than once, ask for gradients of parts in turn, and check what they get.

The networks do what the potentials of graph-pes 1.0 do: a helper marks its targets again, restores their flags, and
asks for gradients that may not be there; a sum of potentials asks each for its own forces.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy, saved_and_loaded


def gradients(y: Tensor, xs: list[Tensor], keep_graph: bool) -> list[Tensor]:
    """Returns zeros for what y does not depend on."""
    required = [x.requires_grad for x in xs]
    for x in xs:
        x.requires_grad_(True)
    total = y.sum() + torch.tensor(0.0, requires_grad=True)
    found = torch.autograd.grad([total], xs, create_graph=keep_graph, allow_unused=True)
    for x, before in zip(xs, required):  # noqa: B905 (TorchScript has no strict=)
        x.requires_grad_(before)
    result: list[Tensor] = []
    for x, each in zip(xs, found):  # noqa: B905
        result.append(torch.zeros_like(x) if each is None else each)
    return result


class Layers(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.a = nn.Linear(3, width)
        self.b = nn.Linear(width, width)
        self.c = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.silu(self.b(torch.tanh(self.a(x)))))


class Part(nn.Module):
    """A potential: an energy and the forces on points, which it marks before and after its energy."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.energy = Layers(width)

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        x = given.clone().detach()
        x.requires_grad_(True)
        energy = self.energy(x)
        return energy.sum(), -gradients(energy, [x], self.training)[0]


class Stressed(Part):
    """Two targets, of which the second is a leaf and the first is computed from it."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        change = torch.zeros(3, 3, dtype=given.dtype)
        change.requires_grad_(True)
        x = given.clone().detach() @ (torch.eye(3, dtype=given.dtype) + 0.5 * (change + change.t()))
        x.requires_grad_(True)
        energy = self.energy(x)
        forces, virial = gradients(energy, [x, change], self.training)
        return energy.sum() + virial.sum(), -forces


class Restored(Part):
    """Points are leaves for a while: what was computed before has no gradient of them, nor has what comes after."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        x = given.clone().detach()
        before = x.square()
        z = given.sin().detach()
        z.requires_grad_(True)
        found = gradients(self.energy(z) * before, [x, z], self.training)
        z.requires_grad_(False)
        return self.energy(z * found[1]).sum(), found[0] + gradients(self.energy(z), [z], self.training)[0]


class MarkedAgain(Part):
    """A leaf that is marked again is the same leaf: the second gradient goes through the first."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        z = given.sin().detach()
        z.requires_grad_(True)
        found = gradients(self.energy(z), [z], self.training)[0]
        z.requires_grad_(False)
        y = self.energy(z * found)
        return y.sum(), gradients(y, [z], self.training)[0]


class Constant(Part):
    """Its energy does not depend on the points."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        x = given.clone().detach()
        x.requires_grad_(True)
        energy = self.energy(torch.ones(2, 3, dtype=given.dtype))
        return energy.sum(), -gradients(energy, [x], self.training)[0]


class Sum(nn.Module):
    """Asks its parts in turn; the largest comes last."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Constant(8), Part(8), Stressed(width)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        energy, forces = torch.zeros((), dtype=x.dtype), torch.zeros_like(x)
        for part in self.parts:
            more, pull = part(x)
            energy = energy + more
            forces += pull
        return energy, forces


class Checked(Part):
    """Looks at the forces that it has, and returns those that are not small."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        x = given.clone().detach()
        x.requires_grad_(True)
        energy = self.energy(x)
        forces = -gradients(energy, [x], self.training)[0]
        if not bool(torch.isfinite(forces).all()):
            raise ValueError("forces are not finite")
        return energy.sum(), forces[torch.linalg.norm(forces, dim=1) > 0.01]


NETWORKS: dict[str, type[nn.Module]] = {
    each.__name__: each for each in (Part, Stressed, Restored, Constant, Sum, Checked)
}


def step(module: nn.Module, x: Tensor) -> list[Tensor | None]:
    module.zero_grad(set_to_none=True)
    energy, forces = module(x)
    flags = torch.tensor([energy.requires_grad, forces.requires_grad])
    if module.training:
        (energy.square() + forces.square().sum()).backward()
    return [energy.detach(), forces.detach(), flags, *(each.grad for each in module.parameters())]


def points(count: int = 40) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(7))


def regions_and_breaks(module: torch.jit.ScriptModule) -> list[tuple[int, int]]:
    return [
        (len(each["regions"]), len(each["breaks"]))
        for method in aten_recompute.report(module)["methods"]
        for each in method["specialisations"]
    ]


@pytest.mark.parametrize("strategy", ["none", "all", "segments", "budget"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_is_one_region_with_the_bits_of_eager(name: str, training: bool, strategy: str) -> None:
    torch.manual_seed(0)
    module = NETWORKS[name]().train(training)
    options: dict[str, Any] = {"memory_budget": 0.7, "unreachable": "leanest"} if strategy == "budget" else {}
    lowered = lowered_copy(module, strategy, **options)
    expected = step(module, points())
    for _ in range(3):
        assert_same(step(lowered, points()), expected)
    assert regions_and_breaks(lowered) == [(1, 0)]
    assert_same(step(saved_and_loaded(lowered).train(training), points()), expected)


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_leaf_that_is_marked_again_is_the_same_leaf(strategy: str) -> None:
    """Sums of gradients of second order have another order, so that last bits differ."""
    torch.manual_seed(0)
    module = MarkedAgain()
    lowered = lowered_copy(module, strategy)
    expected = step(module, points())
    for got, wanted in zip(step(lowered, points()), expected, strict=True):
        assert got is not None
        assert wanted is not None
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-7)
    assert torch.count_nonzero(expected[1]) > 0  # type: ignore[arg-type]
    assert regions_and_breaks(lowered) == [(1, 0)]


class WrittenBetween(Part):
    """Such a leaf is written to before it is marked again, which is left to TorchScript."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        z = given.sin().detach()
        z.requires_grad_(True)
        found = gradients(self.energy(z), [z], False)[0]
        z.requires_grad_(False)
        z.mul_(2.0)
        y = self.energy(z * found)
        return y.sum(), gradients(self.energy(z), [z], self.training)[0]


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_leaf_may_be_written_to_before_it_is_marked_again(strategy: str) -> None:
    torch.manual_seed(0)
    module = WrittenBetween()
    lowered = lowered_copy(module, strategy)
    for _ in range(2):
        assert_same(step(lowered, points()), step(module, points()))


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_without_gradients_it_raises_as_eager_does(strategy: str) -> None:
    for make in (Part, Constant):
        module = make()
        lowered = lowered_copy(module, strategy)
        for each in (module, lowered):
            with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
                each(points())
        assert_same(step(lowered, points()), step(module, points()))


class OfPlainOutput(Part):
    """No output and no target requires a gradient unless the weights do."""

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        x = given.clone().detach()
        x.requires_grad_(True)
        energy = self.energy(torch.ones(2, 3, dtype=given.dtype)).sum()
        found = torch.autograd.grad([energy], [x], create_graph=True, allow_unused=True)[0]
        return energy, torch.zeros_like(x) if found is None else found


def test_frozen_weights_decide_whether_there_is_a_gradient_to_ask_for() -> None:
    module = OfPlainOutput()
    lowered = lowered_copy(module, "all")
    for requires_grad in (True, False, True):
        for parameter in [*module.parameters(), *lowered.parameters()]:
            parameter.requires_grad_(requires_grad)
        if requires_grad:
            assert_same(step(lowered, points()), step(module, points()))
            continue
        for each in (module, lowered):
            with pytest.raises(RuntimeError, match="does not require grad"):
                each(points())


def peak_of(module: nn.Module, x: Tensor, tracker: Tracker) -> int:
    with tracker.measure_peak() as peak:
        step(module, x)
    return peak.bytes


@pytest.mark.parametrize("name", ["Sum", "Checked"])
def test_an_evaluation_keeps_a_budget(name: str, tracker: Tracker) -> None:
    """The forward of the last part stands behind the gradient of another one; the check behind all gradients."""
    torch.manual_seed(0)
    module = NETWORKS[name](256).eval()
    x = points(2000)
    eager = [peak_of(copy.deepcopy(module), x, tracker) for _ in range(2)][-1]
    budget = int(0.6 * eager)
    lowered = lowered_copy(module, "budget", memory_budget=budget, exact=False)
    expected = step(module, x)
    for _ in range(3):
        assert_same(step(lowered, x), expected)
    assert peak_of(lowered, x, tracker) <= budget
    assert regions_and_breaks(lowered) == [(1, 0)]
