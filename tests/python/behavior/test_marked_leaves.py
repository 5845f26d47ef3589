"""Leaves of conversions, which return their operand where they have nothing to do, and of what was read before."""

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy


class Converted(nn.Module):
    """The argument itself becomes the leaf where it is in double precision already."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = x.double()
        positions.requires_grad_(True)
        energy = (torch.sin(positions) * self.weight).sum() + torch.cos(x).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return force, energy


class Detached(Converted):
    """A copy, or another name of what was detached."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        detached = x.detach()
        positions = detached.double().requires_grad_(True)
        energy = (torch.sin(positions) * self.weight).sum() + torch.cos(detached).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return force, energy


class Computed(Converted):
    """What is converted was read before it becomes a leaf."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.cos(x).double()
        before = positions * 2
        positions.requires_grad_(True)
        energy = (torch.sin(positions) * self.weight + before).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return force, energy


class Contiguous(Converted):
    """Only contiguous arguments are marked."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = x.contiguous()
        positions.requires_grad_(True)
        energy = (torch.sin(positions) * self.weight).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return force, energy


@pytest.mark.parametrize("needs_grad", [False, True], ids=["plain", "needs_grad"])
@pytest.mark.parametrize("model", [Converted, Detached, Computed, Contiguous], ids=lambda model: model.__name__)
def test_marked_conversions_are_those_of_eager(model: type[nn.Module], needs_grad: bool) -> None:
    eager = model()
    lowered = lowered_copy(eager, "all")
    for dtype in (torch.float32, torch.float64, torch.float32):
        for layout in ("rows", "columns", "rows"):
            results, is_marked = [], []
            for module in (eager, lowered):
                x = torch.linspace(0, 1, 20, dtype=dtype)
                x = (x.view(5, 4) if layout == "rows" else x.view(4, 5).t()).clone()
                x.requires_grad_(needs_grad)
                force, energy = module(x)
                gradients = torch.autograd.grad(energy + force.square().sum(), list(module.parameters()))
                results.append([force, energy, *gradients])
                is_marked.append(x.requires_grad)
            assert is_marked[1] == is_marked[0]
            if model is Contiguous:  # of several regions, whose gradients are added in another order
                torch.testing.assert_close(results[1], results[0])
            else:
                assert_same(results[1], results[0])


@pytest.mark.lowered_only
@pytest.mark.parametrize("model", [Converted, Detached, Computed], ids=lambda model: model.__name__)
def test_a_method_that_marks_a_conversion_is_one_region(model: type[nn.Module]) -> None:
    lowered = lowered_copy(model(), "all")
    for dtype in (torch.float32, torch.float64):
        lowered(torch.rand(5, 4, dtype=dtype))
    specialisations = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert [(len(each["regions"]), each["breaks"]) for each in specialisations] == [(1, []), (1, [])]


class ReadBefore(Converted):
    """What was computed from the argument before it becomes a leaf has no gradient, unless it was one already."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = x * 2
        x.requires_grad_(True)
        energy = (torch.sin(x) * self.weight + before).sum()
        force = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert force is not None
        return force, energy + (x * before).sum()


class ComputedBefore(Converted):
    """The same for a tensor that the method computes, and that may have a gradient from the argument."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.cos(x)
        before = positions * 2
        positions.requires_grad_(True)
        energy = (torch.sin(positions) * self.weight + before).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return force, energy + (positions * before).sum()


@pytest.mark.parametrize("model", [ReadBefore, ComputedBefore], ids=lambda model: model.__name__)
def test_what_was_read_before_it_was_marked(model: type[nn.Module]) -> None:
    eager = model()
    lowered = lowered_copy(eager, "all")
    for needs_grad in (False, True, False):
        results = []
        for module in (eager, lowered):
            x = torch.linspace(0, 1, 20).view(5, 4).clone().requires_grad_(needs_grad)
            force, result = module(x)
            wanted = [*module.parameters(), *([x] if x.requires_grad else [])]
            gradients = torch.autograd.grad(result + force.square().sum(), wanted, allow_unused=True)
            results.append([force, result, *gradients])
        assert_same(results[1], results[0])


@pytest.mark.lowered_only
@pytest.mark.parametrize("model", [ReadBefore, ComputedBefore], ids=lambda model: model.__name__)
def test_a_method_that_marks_what_it_has_read_is_one_region(model: type[nn.Module]) -> None:
    lowered = lowered_copy(model(), "all")
    for needs_grad in (False, True, False):
        lowered(torch.rand(5, 4, requires_grad=needs_grad))
    specialisations = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert [(len(each["regions"]), each["breaks"]) for each in specialisations] == [(1, []), (1, [])]


class GradientBefore(nn.Module):
    """What is computed from a gradient has one itself where the formula of that reads what has one: here, ``y``."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        product = (x * y).sum()
        gradient = torch.autograd.grad([product], [x], create_graph=True)[0]
        assert gradient is not None
        positions = torch.cos(gradient)
        before = torch.sin(positions)
        positions.requires_grad_(True)
        energy = (torch.sin(positions) * x + before * positions).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, force, energy + before.sum()


class GradientAsked(GradientBefore):
    """Whether it has one decides what is computed."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        product = (x * y).sum()
        gradient = torch.autograd.grad([product], [x], create_graph=True)[0]
        assert gradient is not None
        scaled = torch.cos(gradient)
        return scaled, gradient, (scaled * 3.0 if scaled.requires_grad else scaled * 0.5).sum() * x.sum()


class GivenGradient(GradientBefore):
    """The gradient has one where that which it is given has one, which nothing else reads."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given: list[Tensor | None] = [y]
        gradient = torch.autograd.grad([x * 3.0], [x], grad_outputs=given, create_graph=True)[0]
        assert gradient is not None
        positions = torch.cos(gradient)
        before = torch.sin(positions)
        positions.requires_grad_(True)
        return positions, before, before * positions


def results_of(module: nn.Module, needs_grad: bool) -> list[Tensor | None]:
    x = torch.linspace(0.1, 1, 20).view(5, 4).clone().requires_grad_()
    y = torch.linspace(1, 0.1, 20).view(5, 4).clone().requires_grad_(needs_grad)
    results = module(x, y)
    leaves = [tensor for tensor in (x, y, *results) if tensor.is_leaf and tensor.requires_grad]
    total = torch.stack([result.square().sum() for result in results]).sum()
    flags = [torch.tensor([result.requires_grad, result.is_leaf]) for result in results]
    return [*results, *flags, *torch.autograd.grad(total, leaves, allow_unused=True)]


@pytest.mark.parametrize("model", [GradientBefore, GradientAsked, GivenGradient], ids=lambda model: model.__name__)
def test_what_is_computed_from_a_gradient_was_read_before_it_was_marked(model: type[nn.Module]) -> None:
    lowered = lowered_copy(model(), "all")
    for needs_grad in (False, True, False):
        assert_same(results_of(lowered, needs_grad), results_of(model(), needs_grad))


@pytest.mark.lowered_only
@pytest.mark.parametrize("model", [GradientBefore, GradientAsked, GivenGradient], ids=lambda model: model.__name__)
def test_a_method_that_marks_what_it_computes_from_a_gradient_is_one_region(model: type[nn.Module]) -> None:
    lowered = lowered_copy(model(), "all")
    for needs_grad in (False, True, False):
        results_of(lowered, needs_grad)
    specialisations = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert [(len(each["regions"]), each["breaks"]) for each in specialisations] == [(1, []), (1, [])]


class MarkedResult(nn.Module):
    """A gradient frees its graph, which does not lead through all operators of the method."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        unused = torch.tanh(x)
        total = torch.relu(x).sum()
        slope = torch.autograd.grad([total], [x, unused], create_graph=True, allow_unused=True)[0]
        assert slope is not None
        weight = torch.relu(x)
        marked = torch.tanh(slope)
        marked.requires_grad_(True)
        given: list[Tensor | None] = [torch.relu(weight)]
        gradient = torch.autograd.grad([torch.relu(x) * x], [x], grad_outputs=given)[0]
        assert gradient is not None
        return marked, gradient


def test_a_marked_result_beside_a_graph_that_is_freed() -> None:
    """With several regions, the gradient of the marked result would pass through one that is freed."""
    eager = MarkedResult()
    lowered = lowered_copy(eager, "all")
    results = []
    for module in (eager, lowered):
        x = torch.linspace(-1, 1, 20).requires_grad_()
        marked, gradient = module(x)
        results.append([marked, gradient, *torch.autograd.grad([marked.sum()], [x])])
    assert_same(results[1], results[0])
