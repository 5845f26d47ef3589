"""Methods may call torch.autograd.grad and backward() inside of forward, as interatomic potentials do."""

import copy
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from support.eager_comparison import Case, check, every
from support.helpers import assert_same, lowered_copy
from support.sources import run_source

ORDER = "a region that runs again for a second derivative adds the gradients of an input in another order"
HIDDEN = "TorchScript differentiates a subgraph as a whole, which hides the history of the values in it"


def energy_forces(energy: Tensor, positions: Tensor, training: bool) -> Tensor:
    """Computes forces as MACE, SchNetPack and TorchMD-NET do."""
    ones: list[Tensor | None] = [torch.ones_like(energy)]
    gradient = torch.autograd.grad(
        [energy], [positions], ones, retain_graph=training, create_graph=training, allow_unused=True
    )[0]
    if gradient is None:
        return torch.zeros_like(positions)
    return -1 * gradient


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0.5, 2.0, 6).view(2, 3))


class Once(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = (x.sin() * x * self.w).sum()
        g = torch.autograd.grad([y], [x])[0]
        assert g is not None
        return g * self.w


class Graph(Weighted):
    """The caller differentiates the result again."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x.sin() * x * self.w).sum()
        g = torch.autograd.grad([y], [x], create_graph=True)[0]
        assert g is not None
        return (g * g).sum() + y


class GraphOfLeaf(Weighted):
    """Makes the leaf in the method."""

    def forward(self, x: Tensor) -> Tensor:
        z = x.detach().clone().requires_grad_(True)
        y = (z.tanh() * z * self.w).sum()
        g = torch.autograd.grad([y], [z], create_graph=True)[0]
        assert g is not None
        return g * x


class OfLeaf(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        z = x.detach().clone().requires_grad_(True)
        y = (z.tanh() * z * self.w).sum()
        g = torch.autograd.grad([y], [z])[0]
        assert g is not None
        return g * x * self.w


class RequiresInput(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        x.requires_grad_(True)
        y = (x.tanh() * x * self.w).sum()
        g = torch.autograd.grad([y], [x], create_graph=True)[0]
        assert g is not None
        return g * self.w


class Twice(Weighted):
    """Computes a second derivative in the method."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x.sin() * x * self.w).sum()
        g = torch.autograd.grad([y], [x], create_graph=True)[0]
        assert g is not None
        h = torch.autograd.grad([g.sum()], [x], create_graph=True)[0]
        assert h is not None
        return h * self.w + g


class InnerStep(Weighted):
    """Makes a step of gradient descent on a parameter, through which the caller differentiates (MAML)."""

    def forward(self, x: Tensor) -> Tensor:
        loss = (x * self.w).tanh().square().mean()
        g = torch.autograd.grad([loss], [self.w], create_graph=True)[0]
        assert g is not None
        return (x * (self.w - 0.1 * g)).tanh().square().mean()


class SeveralOfSeveral(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        a, b = x.tanh() * self.w, (x * self.w).sigmoid()
        ones: list[Tensor | None] = [torch.full_like(a, 0.5), torch.full_like(b, 2.0)]
        gx, gw = torch.autograd.grad([a, b], [x, self.w], ones, create_graph=True)
        assert gx is not None
        assert gw is not None
        return gx * gw


class OfAnInnerValue(Weighted):
    """Differentiates with respect to a value that is neither an input nor a parameter."""

    def forward(self, x: Tensor) -> Tensor:
        h = x.tanh() * self.w
        y = (h * h * self.w).sum()
        g = torch.autograd.grad([y], [h], retain_graph=True)[0]
        assert g is not None
        return g + h


class Unused(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        other = self.w * 2
        g = torch.autograd.grad([(x * self.w).sum()], [other], allow_unused=True)[0]
        if g is None:
            return other * x
        return g * x


class Dropped(Weighted):
    """Draws random numbers before the gradient and after it."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.dropout(x.tanh() * self.w, 0.4, True)
        g = torch.autograd.grad([h.square().sum()], [x], create_graph=True)[0]
        assert g is not None
        return torch.dropout(g, 0.4, True) * h


class DroppedAndFreed(Weighted):
    """The gradient frees the graph of a dropout that it goes back through."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.dropout(x.tanh() * self.w, 0.4, True)
        g = torch.autograd.grad([h.square().sum()], [x])[0]
        assert g is not None
        return g * self.w * h.detach()


class FreedDropout(Weighted):
    """The caller's backward goes through the dropout, whose graph is gone."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.dropout(x, 0.4, True)
        g = torch.autograd.grad([h.square().sum()], [x])[0]
        assert g is not None
        return g * self.w * h


class FreedBehindALeaf(Weighted):
    """Returns what depends on a leaf of the method alone, through a graph that is gone, beside a result."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.detach().clone().requires_grad_(True)
        g = torch.autograd.grad([leaf.pow(3).sum()], [leaf], create_graph=True)[0]
        assert g is not None
        h = torch.autograd.grad([g.sum()], [leaf])[0]
        assert h is not None
        return g, x * self.w * h


def asked_for_inputs(module: nn.Module) -> Any:
    """Asks for gradients of both results with respect to the input and the parameters."""
    x = torch.randn(2, 3, requires_grad=True)
    results = module(x)
    return results, torch.autograd.grad([each.sum() for each in results], [x, *module.parameters()], allow_unused=True)


class InALoop(Weighted):
    """Makes a few steps down the energy, as a relaxation does."""

    def forward(self, x: Tensor) -> Tensor:
        z = x
        for _ in range(3):
            g = torch.autograd.grad([(z.sin() * self.w).sum()], [z], create_graph=True)[0]
            assert g is not None
            z = z - 0.1 * g
        return z


class Backward(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = (x.sin() * x * self.w).sum()
        y.backward()
        g = x.grad
        assert g is not None
        return g * self.w


class BackwardTwice(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = (x.sin() * x * self.w).sum()
        y.backward(retain_graph=True)
        (y * y).backward(retain_graph=True)
        return y * 2


class WithoutHistory(Weighted):
    """torch.autograd.grad raises, since the value does not depend on the input."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x.detach() * 2).sum()
        g = torch.autograd.grad([y], [x])[0]
        assert g is not None
        return g * self.w


class OneOfTwoWithoutHistory(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = (x.detach() * 2).sum()
        g = torch.autograd.grad([y, (x * self.w).sum()], [x], create_graph=True)[0]
        assert g is not None
        return g * self.w


class NotUsed(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        y = (self.w * 2).sum()
        g = torch.autograd.grad([y], [x])[0]
        assert g is not None
        return g * self.w


def trained(requires_grad: bool = True, dtype: torch.dtype = torch.float32) -> Callable[[nn.Module], Any]:
    def use(module: nn.Module) -> Any:
        x = torch.randn(2, 3, dtype=dtype, requires_grad=requires_grad)
        y = module(x)
        y.square().sum().backward()
        return y, x.grad

    return use


def accumulated(module: nn.Module) -> Any:
    """Returns the gradients that the method itself accumulated, and those of the caller."""
    x = torch.randn(2, 3, requires_grad=True)
    y = module(x)
    before = [p.grad.clone() for p in [x, *module.parameters()] if p.grad is not None]
    if y.grad_fn is not None:
        y.sum().backward()
    return y, before, x.grad


CASES = [
    Case("once", Once, trained()),
    Case("graph", lambda: Graph().double(), trained(dtype=torch.float64), close=ORDER),
    Case("of_leaf", OfLeaf, trained()),
    Case("of_leaf_no_input_gradient", OfLeaf, trained(False)),
    Case("graph_of_leaf", GraphOfLeaf, trained()),
    Case("requires_input", RequiresInput, trained(False)),
    Case("twice", Twice, trained()),
    Case("inner_step", InnerStep, trained(False)),
    Case("several_of_several", SeveralOfSeveral, trained()),
    Case("of_an_inner_value", OfAnInnerValue, trained(), stock=HIDDEN),
    Case("unused", Unused, trained()),
    Case("dropped", Dropped, trained()),
    Case("dropped_and_freed", DroppedAndFreed, trained()),
    Case("freed_dropout", FreedDropout, trained(), error="backward through the graph a second time"),
    Case("freed_behind_a_leaf", FreedBehindALeaf, asked_for_inputs),
    Case("in_a_loop", InALoop, trained(), stock=HIDDEN),
    Case("backward", Backward, accumulated),
    Case("backward_twice", BackwardTwice, accumulated),
    Case("without_history", WithoutHistory, trained(), error="does not require grad"),
    Case("one_of_two_without_history", OneOfTwoWithoutHistory, trained(), error="element 0 of tensors"),
    Case("not_used", NotUsed, trained(), error="appears to not have been used in the graph"),
]


@every(CASES)
def test_methods_that_compute_gradients_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)


class Potential(nn.Module):
    """Computes the energy and the forces of atoms."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 16)
        self.outer = nn.Linear(16, 1)
        self.requires_grad_(not frozen)

    def forward(self, positions: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        energy = self.outer(torch.tanh(self.inner(positions))).sum(dim=0)
        return energy, energy_forces(energy, positions, training)


class PotentialOfDict(Potential):
    def forward(self, data: dict[str, Tensor], training: bool) -> dict[str, Tensor]:
        data["positions"].requires_grad_(True)
        positions = data["positions"]
        energy = self.outer(torch.tanh(self.inner(positions))).sum(dim=0)
        return {"energy": energy, "forces": energy_forces(energy, positions, training)}


class PotentialOfEdges(Potential):
    """Sums messages along edges with index_add, and differentiates with respect to a displacement that it makes."""

    def forward(self, positions: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        displacement = torch.zeros([3, 3], dtype=positions.dtype, device=positions.device)
        displacement.requires_grad_(True)
        symmetric = 0.5 * (displacement + displacement.t())
        moved = positions + positions @ symmetric
        count = positions.size(0)
        source = torch.arange(count).repeat_interleave(count)
        target = torch.arange(count).repeat(count)
        vectors = (moved[source] - moved[target])[source != target]
        messages = torch.tanh(self.inner(vectors))
        summed = torch.zeros([count, 16], dtype=messages.dtype).index_add(0, source[source != target], messages)
        energy = self.outer(summed).sum(dim=0)
        return energy, energy_forces(energy, displacement, training)


def simulated(training: bool, as_dict: bool = False) -> Callable[[nn.Module], Any]:
    def use(module: nn.Module) -> Any:
        positions = torch.randn(5, 3)
        if as_dict:
            result = module({"positions": positions}, training)
            energy, forces = result["energy"], result["forces"]
        else:
            energy, forces = module(positions, training)
        if training and energy.requires_grad:
            (energy.square().sum() + forces.square().sum()).backward()
        return energy, forces, positions.grad

    return use


POTENTIALS = [
    Case(f"{make.__name__}_{'training' if training else 'forces'}{'_frozen' if frozen else ''}",
         partial(make, frozen), simulated(training, make is PotentialOfDict))
    for make in (Potential, PotentialOfDict, PotentialOfEdges) for training in (True, False) for frozen in (True, False)
]  # fmt: skip


@every(POTENTIALS)
def test_forces_of_potentials_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)


class GradientOfSeveral(nn.Module):
    """Asks for the gradient of an output of several elements, which only has one with a cotangent of its shape."""

    def forward(self, x: Tensor, cotangent: Tensor | None) -> Tensor:
        given: list[Tensor | None] = [cotangent]
        gradient = torch.autograd.grad([x.sin()], [x], given, create_graph=True)[0]
        assert gradient is not None
        return gradient


@pytest.mark.parametrize("cotangent", [None, torch.tensor(1.0), torch.ones(2)], ids=["none", "number", "short"])
def test_an_output_of_several_elements_needs_a_cotangent_of_its_shape(cotangent: Tensor | None) -> None:
    lowered = aten_recompute.lower(torch.jit.script(GradientOfSeveral()), "none")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="only for scalar outputs" if cotangent is None else "invalid gradient"):
            lowered(torch.randn(3, requires_grad=True), cotangent)


class GradientOfOneElement(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gradient = torch.autograd.grad([x.sin()], [x], create_graph=True)[0]
        assert gradient is not None
        return gradient


def test_an_output_of_one_element_in_the_recorded_call_may_have_several_later() -> None:
    lowered = aten_recompute.lower(torch.jit.script(GradientOfOneElement()), "none")
    one = torch.randn(1, 1, requires_grad=True)
    for _ in range(2):
        assert torch.equal(lowered(one), one.cos())
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        lowered(torch.randn(2, 3, requires_grad=True))
    assert torch.equal(lowered(one), one.cos())


class UnusedTarget(nn.Module):
    """Asks for the gradient of what the output does not depend on, which is None if it requires one at all."""

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        gradients = torch.autograd.grad([x.sin().sum()], [x, other], create_graph=True, allow_unused=True)
        of_x, of_other = gradients[0], gradients[1]
        assert of_x is not None
        assert of_other is None
        return of_x * other


@pytest.mark.parametrize("first", [True, False])
def test_an_unused_target_has_to_require_a_gradient(first: bool) -> None:
    eager = UnusedTarget()
    lowered = aten_recompute.lower(torch.jit.script(eager), "none")
    for requires_grad in (first, not first, first):
        for module in (eager, lowered):
            x, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=requires_grad)
            if requires_grad:
                assert_same([module(x, other)], [x.cos()])
                continue
            with pytest.raises(RuntimeError, match="does not require grad"):
                module(x, other)


class SecondGradientOfCumulativeSum(nn.Module):
    """The gradient of the gradient is a constant, which requires none."""

    def forward(self, x: Tensor) -> Tensor:
        h = x * 0.5
        first = torch.autograd.grad([(h.cumsum(0) * h).sum()], [h], create_graph=True)[0]
        assert first is not None
        second = torch.autograd.grad([first.sum()], [h], create_graph=True)[0]
        assert second is not None
        return second


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_what_is_constant_requires_no_gradient(strategy: str) -> None:
    eager = SecondGradientOfCumulativeSum()
    lowered = aten_recompute.lower(torch.jit.script(eager), strategy)
    x = torch.randn(4, requires_grad=True)
    for _ in range(2):
        expected, found = eager(x), lowered(x)
        assert_same([found], [expected])
        assert not expected.requires_grad
        assert not found.requires_grad


ONES = "torch.ones([2, 2], dtype=torch.float64)"
# The second derivative of these is zero, and eager PyTorch's graph of forces does not lead back to their operand.
LINEAR = {
    "rfft": "torch.view_as_real(torch.fft.rfft(x))",
    "kron": f"torch.kron(x, {ONES})",
    "take": "torch.take(x, torch.tensor([0, 3]))",
    "trace": "torch.trace(x)",
    "trapz": "torch.trapz(x)",
    "kthvalue": "torch.kthvalue(x, 2)[0]",
    "max": "torch.max(x)",
    "median": "torch.median(x)",
    "complex": "torch.real(torch.complex(x, x * 2.0))",
    "sparse": "x.to_sparse().to_dense()",
    "circular": "F.pad(x, [1, 2], mode='circular')",
}
# Its formulas of these have zeros for the operand.
WITH_ZEROS = {
    "avg_pool1d": "F.avg_pool1d(x[None], 2)",
    "avg_pool3d": "F.avg_pool3d(x[None, None, None], [1, 2, 2])",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(x[None], [2, 2])",
    "max_pool1d": "F.max_pool1d(x[None], 2)",
    "max_pool2d": "F.max_pool2d(x[None], 2)",
    "adaptive_max_pool1d": "F.adaptive_max_pool1d(x[None], 2)",
    "reflect": "F.pad(x, [1, 2], mode='reflect')",
    "replicate": "F.pad(x[None], [1, 2, 1, 1], mode='replicate')",
}
FORCES_OF = """
class Forces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor, trains: bool) -> torch.Tensor:
        y = {y}
        w = torch.ones_like(y)
        if trains:
            w = w * self.weight
        forces = torch.autograd.grad([(y * w).sum()], [x], create_graph=True)[0]
        assert forces is not None
        return forces
"""


@pytest.mark.parametrize("kind", LINEAR | WITH_ZEROS)
def test_second_gradients_of_linear_operators_are_none_or_zeros_as_in_eager(kind: str) -> None:
    torch.manual_seed(0)
    source = FORCES_OF.format(y=(LINEAR | WITH_ZEROS)[kind])
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "__name__": __name__}
    run_source(source, f"<forces of {kind}>", names)
    eager = names["Forces"]()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "all")
    for _ in range(2):
        found = []
        for module in (eager, lowered):
            module.zero_grad()
            torch.manual_seed(1)
            x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
            constant = module(x, False)
            assert constant.requires_grad == (kind in WITH_ZEROS)
            module(x, True).square().sum().backward()
            assert (x.grad is None) == (kind in LINEAR)
            found.append([constant, x.grad, *(p.grad for p in module.parameters())])
        assert_same(found[1], found[0])


class MakesLeafIfNeeded(Weighted):
    """As DeePMD-kit does: what was computed becomes a leaf, unless it requires a gradient already."""

    def forward(self, x: Tensor, with_weight: bool) -> Tensor:
        c = torch.cat([x, x.flip(0)]) * 2.0
        if with_weight:
            c = c * torch.cat([self.w, self.w])
        if not c.requires_grad:
            c = c.clone().requires_grad_(True)
        energy = (c.sin() * c).sum()
        g = torch.autograd.grad([energy], [c], retain_graph=True, create_graph=self.training)[0]
        assert g is not None
        return g[:2] * self.w + energy


class AsksWhatItComputed(Weighted):
    """Each of these questions has an answer of its own."""

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        y = x * 2.0
        if y.requires_grad:
            y = y + 1.0
        if y.detach().requires_grad:
            y = y + 2.0
        if (count * 2).float().requires_grad:
            y = y + 4.0
        with torch.no_grad():
            z = x * 3.0
        if z.requires_grad:
            y = y + 8.0
        if (y * self.w).requires_grad:
            y = y + 16.0
        if torch.zeros_like(y).requires_grad:
            y = y + 32.0
        return y * self.w + z


def breaks_of(lowered: torch.jit.ScriptModule) -> list[Any]:
    found = []
    for method in aten_recompute.report(lowered)["methods"]:
        for specialization in method["specialisations"]:
            found += specialization["breaks"]
    return found


def trained_once(module: nn.Module, requires: tuple[bool, bool], given: Any, enabled: bool = True) -> list[Any]:
    """Runs a step in which the input and the weight may require a gradient; returns what can be seen of it."""
    module.zero_grad()
    module.w.requires_grad_(requires[1])
    x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_(requires[0])
    with torch.set_grad_enabled(enabled):
        result = module(x, given)
    if result.requires_grad:
        result.square().sum().backward()
    return [result.detach(), torch.tensor(result.requires_grad), x.grad, module.w.grad]


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("training", [True, False])
def test_a_leaf_is_made_where_what_was_computed_requires_no_gradient(training: bool, strategy: str) -> None:
    module = MakesLeafIfNeeded().train(training)
    lowered = lowered_copy(module, strategy)
    for x_requires, w_requires, with_weight in itertools.product([False, True], repeat=3):
        expected = trained_once(module, (x_requires, w_requires), with_weight)
        for _ in range(2):
            assert_same(trained_once(lowered, (x_requires, w_requires), with_weight), expected)
    assert breaks_of(lowered) == []


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_what_was_computed_says_whether_it_requires_a_gradient(strategy: str) -> None:
    module = AsksWhatItComputed()
    lowered = lowered_copy(module, strategy)
    for x_requires, w_requires, enabled in itertools.product([False, True], repeat=3):
        expected = trained_once(module, (x_requires, w_requires), torch.arange(3), enabled)
        for _ in range(2):
            assert_same(trained_once(lowered, (x_requires, w_requires), torch.arange(3), enabled), expected)
    assert breaks_of(lowered) == []


class SetsGradMode(Weighted):
    """As AIMNet2 does: enables gradients for its forces, which they are in training, and restores what was set."""

    def forward(self, x: Tensor, given: Tensor) -> Tensor:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        x.requires_grad_()
        energy = (x.sin() * x * self.w).sum() if given.size(0) > 1 else (x.cos() * self.w).sum()
        g = torch.autograd.grad([energy], [x], create_graph=self.training)[0]
        assert g is not None
        torch.set_grad_enabled(before)
        return g * self.w + energy


def test_training_is_one_region_after_an_evaluation_that_cannot_be() -> None:
    """As where a trainer validates first: there, the method sets another mode than that of the call."""
    module = SetsGradMode()
    lowered = lowered_copy(module, "all")
    for enabled in (False, True, False, True):
        expected = trained_once(module, (True, True), torch.zeros(3), enabled)
        assert_same(trained_once(lowered, (True, True), torch.zeros(3), enabled), expected)
    regions = [len(each["regions"]) for each in aten_recompute.report(lowered)["methods"][0]["specialisations"]]
    assert regions[0] > 1
    assert regions[1:] == [1]


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_mode_may_be_set_that_is_set_already(strategy: str) -> None:
    module = SetsGradMode()
    lowered = lowered_copy(module, strategy)
    for enabled, requires in itertools.product([True, False], repeat=2):
        expected = trained_once(module, (requires, True), torch.zeros(3), enabled)
        assert_same(trained_once(lowered, (requires, True), torch.zeros(3), enabled), expected)
        if enabled:
            assert breaks_of(lowered) == []
