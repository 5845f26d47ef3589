"""Gradients that a method asks for are part of its region, and have gradients of their own."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.gradient_programs import PROGRAMS, Forces, Hessian, Potential, ThirdDerivatives, points
from support.helpers import assert_same, lowered_copy


def fresh(inputs: tuple[Any, ...]) -> list[Any]:
    return [
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, Tensor) else each
        for each in inputs
    ]


def step(module: nn.Module, inputs: tuple[Any, ...], backward: bool = True) -> tuple[list[Tensor | None], list[bool]]:
    """Returns results and gradients of a step, and which results require grad."""
    torch.manual_seed(1)
    module.zero_grad(set_to_none=True)
    own = fresh(inputs)
    outputs = list(module(*own))
    seen: list[Tensor | None] = [output.detach().clone() for output in outputs]
    flags = [output.requires_grad for output in outputs]
    if backward:
        sum(((o - 0.2) ** 2).sum() * (k + 1) for k, o in enumerate(outputs) if o.requires_grad).backward()
    seen += [None if p.grad is None else p.grad.clone() for p in module.parameters()]
    seen += [each.grad for each in own if isinstance(each, Tensor)]
    return seen, [*flags, *(each.requires_grad for each in own if isinstance(each, Tensor))]


def assert_close(got: list[Tensor | None], expected: list[Tensor | None], tolerance: float) -> None:
    """Relative to the largest value: what a norm removes again has a gradient that is a rounding error."""
    assert len(got) == len(expected)
    scale = max(float(each.abs().max()) for each in expected if each is not None)
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert float((a - b).abs().max()) <= tolerance * scale


def regions(module: torch.jit.ScriptModule) -> list[Any]:
    return [
        region
        for specialization in aten_recompute.report(module)["methods"][0]["specialisations"]
        for region in specialization["regions"]
    ]


@pytest.mark.parametrize("strategy", ["none", "all", "segments", "min_cut"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_those_of_eager(name: str, dtype: torch.dtype, strategy: str) -> None:
    make, make_inputs = PROGRAMS[name]
    torch.manual_seed(0)
    net = make().to(dtype)
    inputs = tuple(each.to(dtype) if each.is_floating_point() else each for each in make_inputs())
    inputs = tuple(
        each.detach().requires_grad_(given.requires_grad) for each, given in zip(inputs, make_inputs(), strict=True)
    )
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), strategy)
    expected, flags = step(net, inputs)
    for _ in range(3):
        got, got_flags = step(lowered, inputs)
        assert_close(got, expected, 1e-6 if dtype == torch.float32 else 1e-12)
        assert got_flags == flags
    (region,) = regions(lowered)
    (variant,) = region["variants"]
    assert variant["operators"]["on_tape"] == [] if "operators" in variant else True


@pytest.mark.parametrize("name", ["forces", "stress"])
@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
@pytest.mark.parametrize("frozen", [False, True])
def test_evaluation_gives_forces_and_frees_its_graph(name: str, strategy: str, frozen: bool) -> None:
    make, make_inputs = PROGRAMS[name]
    torch.manual_seed(0)
    net = make().eval().requires_grad_(not frozen)
    inputs = make_inputs()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), strategy)
    lowered.eval()
    for parameter in lowered.parameters():
        parameter.requires_grad_(not frozen)
    expected, flags = step(net, inputs, backward=False)
    for _ in range(3):
        got, got_flags = step(lowered, inputs, backward=False)
        assert_close(got, expected, 0.0)
        assert got_flags == flags
    messages = []
    for module in (net, lowered):
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time") as error:
            module(*fresh(inputs))[0].backward()
        messages.append(str(error.value))
    assert "retain_graph=True" in messages[1]


def test_training_and_evaluation_alternate() -> None:
    torch.manual_seed(0)
    net = Forces()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    for training in (True, False, True, False):
        net.train(training)
        lowered.train(training)
        x = points(7, 3)
        expected, _ = step(net, (x,), backward=training)
        got, _ = step(lowered, (x,), backward=training)
        assert_close(got, expected, 0.0)
    assert len(regions(lowered)) == 2


def test_a_loss_on_a_part_of_the_results() -> None:
    torch.manual_seed(0)
    net = Forces()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    for part in (0, 1, 0):
        grads = []
        for module in (net, lowered):
            module.zero_grad(set_to_none=True)
            torch.manual_seed(2)
            module(points())[part].square().sum().backward()
            grads.append([p.grad for p in module.parameters()])
        assert_close(grads[1], grads[0], 0.0)


def test_two_forwards_before_one_backward() -> None:
    torch.manual_seed(0)
    net = Forces()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "segments")
    x, y = points(4, 3), points(9, 3)
    grads = []
    for module in (net, lowered):
        for _ in range(2):
            module.zero_grad(set_to_none=True)
            (e1, f1), (e2, f2) = module(x.clone()), module(y.clone())
            (f1.square().sum() + f2.square().sum() + e1 * e2).backward()
        grads.append([p.grad for p in module.parameters()])
    assert_close(grads[1], grads[0], 1e-6)


def assert_equal_gradients(net: nn.Module, lowered: torch.jit.ScriptModule) -> None:
    """Compares the gradients of parameters after a loss on the first result."""
    grads = []
    for module in (net, lowered):
        torch.manual_seed(1)
        module(points())[0].square().sum().backward()
        grads.append([p.grad for p in module.parameters()])
    assert_close(grads[1], grads[0], 1e-6)


class FreesAPart(Potential):
    """The gradient ends at a value in the middle: what comes before that is not freed."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.detach().clone().requires_grad_(True)
        middle = torch.cat([leaf * (leaf * 0.5).sum(), leaf], 0).chunk(2)[1] * self.c.weight.sum()
        other = leaf.detach().clone().requires_grad_(True)
        gradient = torch.autograd.grad([(other * middle).sum()], [other, middle])[0]
        assert gradient is not None
        return middle, gradient


def test_a_graph_is_freed_as_far_as_the_targets() -> None:
    torch.manual_seed(0)
    net = FreesAPart()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "none")
    assert_equal_gradients(net, lowered)


class FreesBesideParameters(Potential):
    """What it returns depends on a leaf of its own by a freed operator, and on a parameter by others."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.detach().clone().requires_grad_(True)
        value = torch.relu(leaf) + self.c.weight.sum() * 0.75
        gradient = torch.autograd.grad([torch.relu(value).sum()], [leaf])[0]
        assert gradient is not None
        return value, gradient


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_gradients_that_pass_by_a_freed_operator(strategy: str) -> None:
    torch.manual_seed(0)
    net = FreesBesideParameters()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), strategy)
    x = points(5, 3)
    seen = []
    for module in (net, lowered):
        value, gradient = module(x)
        weight = dict(module.named_parameters())["c.weight"]
        seen.append([gradient, *torch.autograd.grad(value.square().sum(), [weight])])
    assert_close(seen[1], seen[0], 1e-6)


class FreesNothing(Potential):
    """Sums have saved nothing but sizes and types, so a second gradient may pass through them."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.detach().clone().requires_grad_(True)
        gradient = torch.autograd.grad([(leaf * 2).sum()], [leaf], create_graph=True)[0]
        assert gradient is not None
        total = gradient + leaf.mean(0, keepdim=True).expand(leaf.size(0), 3) + self.c.weight.sum()
        first = torch.autograd.grad([total.sum(), total.mean(1).sum()], [leaf])[0]
        assert first is not None
        second = torch.autograd.grad([torch.relu(total).sum()], [leaf], create_graph=True)[0]
        assert second is not None
        return first.tanh() * total + second, second


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_graph_that_has_saved_no_tensor_is_not_freed(strategy: str) -> None:
    torch.manual_seed(0)
    net = FreesNothing()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), strategy)
    assert_equal_gradients(net, lowered)


def test_third_derivatives() -> None:
    """A Hessian in the method, a loss on it, and a gradient of that loss with a graph."""
    torch.manual_seed(0)
    net = Hessian().double()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    x = points(4, 3).double()
    seen = []
    for module in (net, lowered):
        rows = module(x)[2]
        grads = torch.autograd.grad(rows.square().sum(), list(module.parameters())[:1], create_graph=True)
        module.zero_grad(set_to_none=True)
        grads[0].square().sum().backward()
        seen.append([p.grad for p in module.parameters()])
    assert_close(seen[1], seen[0], 1e-12)


def test_saved_cloned_and_enabled_modules() -> None:
    torch.manual_seed(0)
    net = Forces()
    x = points()
    expected, _ = step(net, (x,))
    file = io.BytesIO()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    torch.jit.save(lowered, file)
    file.seek(0)
    enabled = torch.jit.script(copy.deepcopy(net))
    aten_recompute.enable(enabled, "all")
    for module in (torch.jit.load(file), aten_recompute.clone(lowered), enabled):
        for _ in range(2):
            assert_close(step(module, (x,))[0], expected, 1e-6)


def test_without_gradients_the_call_raises_what_eager_raises() -> None:
    net = Forces()
    lowered = aten_recompute.lower(torch.jit.script(net), "none")
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
        lowered(points())
    lowered(points())  # goes on


class NotReached(Potential):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gradient = torch.autograd.grad([self.a(x).sum()], [y], create_graph=True)[0]
        assert gradient is not None
        return gradient


def test_a_target_that_is_not_reached_raises_what_eager_raises() -> None:
    net = NotReached()
    inputs = points(requires_grad=True), points(requires_grad=True)
    for module in (net, aten_recompute.lower(torch.jit.script(net), "none")):
        with pytest.raises(RuntimeError, match="not have been used in the graph"):
            module(*inputs)


@pytest.mark.parametrize("training", [True, False])
def test_larger_systems_are_not_planned_for_while_the_budget_has_room(training: bool) -> None:
    torch.manual_seed(0)
    net = Forces().train(training)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "budget", memory_budget="64MiB")
    lowered.train(training)
    counts = []
    for size in (12, 7, 40, 33, 57, 80):
        x = points(size, 3)
        assert_close(step(lowered, (x,), training)[0], step(net, (x,), training)[0], 1e-6)
        counts.append(len(regions(lowered)[0]["variants"]))
    assert counts[-1] == counts[2] <= 2  # the second, where the first step has shown another caller


def test_systems_of_changing_sizes_stay_under_a_budget_in_bytes() -> None:
    """The plan that follows a second growth leaves room for the next."""
    torch.manual_seed(0)
    net = Forces(64).eval()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "budget", memory_budget="700KiB")
    lowered.eval()
    compiled = 0
    for size in range(200, 800, 20):
        step(lowered, (points(size, 3),), backward=False)
        (region,) = regions(lowered)
        compiled = max(compiled, len(region["variants"]))
        assert all(variant["predicted_peak_bytes"] <= 700 * 1024 for variant in region["variants"])
    assert compiled <= 6


def test_a_larger_system_than_the_budget_allows_does_not_end_a_simulation() -> None:
    torch.manual_seed(0)
    net = Forces(64).eval()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "budget", memory_budget="300KiB")
    lowered.eval()
    for size in (100, 2000):
        x = points(size, 3)
        assert_close(step(lowered, (x,), backward=False)[0], step(net, (x,), backward=False)[0], 1e-6)
    first = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "budget", memory_budget="300KiB")
    first.eval()
    with pytest.raises(aten_recompute.BudgetUnreachableError):
        first(points(2000, 3))


def test_values_are_computed_again_for_forces_in_evaluation() -> None:
    net = Forces(64).eval()
    x = points(2000, 3)
    peaks = []
    for fraction in (1.0, 0.7):
        lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "budget", memory_budget=fraction)
        lowered.eval()
        assert_close(step(lowered, (x,), backward=False)[0], step(net, (x,), backward=False)[0], 1e-6)
        (variant,) = regions(lowered)[0]["variants"]
        peaks.append(variant["predicted_peak_bytes"])
    assert peaks[1] <= 0.7 * peaks[0]
    assert variant["recomputed"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_budgets_hold_in_training(name: str) -> None:
    """Under half of the peak, or near the smallest one, gradients are eager's and the peak is as predicted."""
    make, inputs = PROGRAMS[name]
    torch.manual_seed(0)
    net = make()
    given = inputs()
    expected = step(net, given)[0]
    for fraction in (0.8, 0.5):
        lowered = aten_recompute.lower(
            torch.jit.script(copy.deepcopy(net)), "budget", memory_budget=fraction, unreachable="leanest"
        )
        for _ in range(3):
            assert_close(step(lowered, given)[0], expected, 1e-5)
        (region,) = regions(lowered)
        assert not region["variants"][-1]["on_tape"]


def test_values_are_computed_again_for_forces_in_training() -> None:
    """The energy's values need not be in memory together when the forces begin."""

    class Deep(Potential):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])
            self.first = nn.Linear(3, 64)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x.requires_grad_(True)
            h = self.first(x)
            for layer in self.layers:
                h = h + torch.tanh(layer(h).exp().sin())
            energy = h.pow(2).sum()
            gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
            assert gradient is not None
            return energy, gradient

    torch.manual_seed(0)
    net = Deep()
    x = points(1000, 3)
    expected = step(net, (x,))[0]
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "budget", memory_budget=0.4)
    for _ in range(3):
        assert_close(step(lowered, (x,))[0], expected, 1e-6)
    variant = regions(lowered)[0]["variants"][-1]
    assert variant["measured_peak_bytes"] <= variant["predicted_peak_bytes"] * 1.01
    assert variant["predicted_peak_bytes"] <= 0.4 * variant["unplanned_peak_bytes"]


class OfParameters(Potential):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        energy = self.c(torch.tanh(self.a(x))).pow(2).sum()
        gradient = torch.autograd.grad([energy], [self.a.weight], create_graph=True)[0]
        assert gradient is not None
        return energy, gradient


def hooked_leaf() -> Tensor:
    x = points(requires_grad=True)
    x.register_hook(lambda gradient: gradient * 0.5)
    return x


def hooked_result() -> Tensor:
    x = points(requires_grad=True) * 2
    x.register_hook(lambda gradient: gradient * 0.5)
    return x


@pytest.mark.parametrize("make", [hooked_leaf, hooked_result])
def test_hooks_of_a_target_change_its_gradient(make: Any) -> None:
    torch.manual_seed(0)
    net = Forces()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    seen = []
    for module in (net, lowered):
        torch.manual_seed(1)
        seen.append([each.detach() for each in module(make())])
    assert_close(seen[1], seen[0], 1e-6)
    x = points()
    expected, _ = step(net, (x,))
    assert_close(step(lowered, (x,))[0], expected, 0.0)
    assert len(regions(lowered)[0]["variants"]) == 1  # calls without a hook are planned


def test_hooks_of_a_parameter_change_its_gradient_in_the_method() -> None:
    torch.manual_seed(0)
    net = OfParameters()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    for module in (net, lowered):
        for parameter in module.parameters():
            parameter.register_hook(lambda gradient: gradient * 0.5)
    x = points()
    assert_close(step(lowered, (x,))[0], step(net, (x,))[0], 1e-6)


def test_a_freed_graph_raises_for_gradients_of_inputs_alone() -> None:
    net = Forces().eval()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    lowered.eval()
    for module in (net, lowered):
        x = points(requires_grad=True)
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            torch.autograd.grad(module(x)[0], [x, *module.parameters()], allow_unused=True)


class SavesNoTensor(nn.Module):
    """Eager's graph of what is returned beside forces has saved sizes and types alone."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind == "cat":
            q = torch.cat([x, x], 0)
        elif self.kind == "stack":
            q = torch.stack([x, x])
        else:
            q = x.double()
        gradient = torch.autograd.grad([torch.tanh(q).sum()], [x])[0]
        assert gradient is not None
        return q, gradient


@pytest.mark.parametrize("kind", ["cat", "stack", "double"])
def test_a_freed_graph_that_has_saved_no_tensor_does_not_raise(kind: str) -> None:
    eager = SavesNoTensor(kind)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none")
    x = points()
    for _ in range(2):
        found = []
        for module in (eager, lowered):
            given = x.detach().clone().requires_grad_(True)
            q, forces = module(given)
            (q * 3.0).sum().backward()
            found.append([q.detach(), forces, given.grad])
        assert_close(found[1], found[0], 0.0)


@pytest.mark.parametrize(
    "name",
    [
        "logit",
        "norm_0",
        "norm_1",
        "circular_padding",
        "as_strided",
        "tensor_split",
        "tensor_split_at",
        "adaptive_pooling",
    ],
)
def test_third_derivatives_of_operators(name: str) -> None:
    torch.manual_seed(0)
    net = ThirdDerivatives().double()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "all")
    inputs = (points().double().requires_grad_(), name)
    expected, flags = step(net, inputs)
    for _ in range(2):
        got, got_flags = step(lowered, inputs)
        assert_close(got, expected, 1e-12)
        assert got_flags == flags


class OverChannels(nn.Module):
    """A linear layer over the second of four dimensions, as equivariant potentials have it."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.over_channels = nn.Linear(32, 32, bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        h = self.over_channels(torch.sin(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = torch.sin(h).sum()
        gradient = torch.autograd.grad([y], [x], create_graph=self.training, retain_graph=self.training)[0]
        assert gradient is not None
        return y, gradient


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_products_are_those_of_eager_where_only_an_input_gets_a_gradient(
    bias: bool, frozen: bool, training: bool
) -> None:
    """How ATen multiplies more than two dimensions depends on what requires grad, the weights included."""
    torch.manual_seed(0)
    net = OverChannels(bias).train(training).requires_grad_(not frozen)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(net)), "none")
    x = torch.randn(24, 32, 3, 3)
    for _ in range(2):
        for got, expected in zip(lowered(x.clone()), net(x.clone()), strict=True):
            assert torch.equal(got, expected)


class ReadByAnotherName(nn.Module):
    """A target that is the same tensor as another value, because an operator had nothing to do."""

    def __init__(self, operator: str) -> None:
        super().__init__()
        self.operator = operator

    def same(self, x: Tensor) -> Tensor:
        if self.operator == "contiguous":
            return x.contiguous()
        elif self.operator == "to":
            return x.to(torch.float32)
        elif self.operator == "dropout":
            return nn.functional.dropout(x, 0.5, False)
        elif self.operator == "flatten":
            return x.flatten(1)
        elif self.operator == "sum_to_size":
            return x.sum_to_size(x.size())
        return torch.broadcast_tensors(x, x)[0]

    def forward(self, x: Tensor, both: bool) -> Tensor:
        y = self.same(x)
        energy = (x * x).sum() + (y.sin().sum() if both else torch.zeros(()))
        gradient = torch.autograd.grad([energy], [x, y], create_graph=True, allow_unused=True)[1]
        return torch.zeros(3) if gradient is None else gradient.sin()


@pytest.mark.parametrize("operator", ["contiguous", "to", "dropout", "flatten", "sum_to_size", "broadcast_tensors"])
def test_a_target_that_is_the_same_tensor_as_another_value(operator: str) -> None:
    module = ReadByAnotherName(operator)
    lowered = lowered_copy(module, "none")
    for both in (False, True, False):
        gradients = []
        for each in (module, lowered):
            x = torch.linspace(0.1, 1, 6).view(2, 3).requires_grad_()
            result = each(x, both)
            result.sum().backward()
            gradients.append([result, x.grad])
        assert_same(gradients[1], gradients[0])


class LinearGradient(nn.Module):
    """A gradient of a gradient that does not depend on the target."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, allow_unused: bool) -> Tensor:
        gradient = torch.autograd.grad([(x * self.weight).sum()], [x], create_graph=True)[0]
        assert gradient is not None
        again = torch.autograd.grad([gradient.sin().sum()], [x], allow_unused=allow_unused)[0]
        return torch.full([3], 7.0) if again is None else again


def test_a_gradient_that_is_undefined_when_the_method_runs() -> None:
    lowered = lowered_copy(LinearGradient(), "none")
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert torch.equal(lowered(x, True), torch.full([3], 7.0))
        with pytest.raises(RuntimeError, match="appears to not have been used"):
            lowered(x, False)
    (method,) = aten_recompute.report(lowered)["methods"]
    assert "undefined" in method["unplanned_calls"][0]["reason"]


class OfLinearPieces(nn.Module):
    """The second derivative of an activation that is linear between its bounds is zero, and no part of a graph."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = x * 3
        if self.kind == "leaky_relu":
            y = nn.functional.leaky_relu(h, 0.1)
        elif self.kind == "hardtanh":
            y = nn.functional.hardtanh(h)
        elif self.kind == "relu6":
            y = nn.functional.relu6(h)
        elif self.kind == "hardshrink":
            y = nn.functional.hardshrink(h)
        else:
            y = nn.functional.softshrink(h)
        first = torch.autograd.grad([(y + h * 0.5).mean()], [h], create_graph=True)[0]
        assert first is not None
        again = torch.autograd.grad([(torch.tanh(first) * x).sum()], [h], create_graph=True)[0]
        assert again is not None
        return (y * first).sum(), first, again


@pytest.mark.parametrize("kind", ["leaky_relu", "hardtanh", "relu6", "hardshrink", "softshrink"])
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_second_derivative_of_zero_requires_no_grad(kind: str, strategy: str) -> None:
    module = OfLinearPieces(kind)
    lowered = lowered_copy(module, strategy)
    results = []
    for each in (module, lowered):
        x = torch.linspace(-3, 3, 41).requires_grad_()
        outputs = each(x)
        (outputs[0] + outputs[1].sum()).backward()
        results.append([*outputs, x.grad, torch.tensor([output.requires_grad for output in outputs])])
    assert_same(results[1], results[0])


class OfWritten(nn.Module):
    """Asks for the gradient of a tensor after a write to a part of it."""

    def forward(self, x: Tensor) -> Tensor:
        h = x * 1.25
        h[0] = 0.5
        energy = (torch.relu(x) * h).sum()
        gradient = torch.autograd.grad([energy], [h], create_graph=True)[0]
        assert gradient is not None
        return gradient


def test_the_path_of_a_gradient_of_a_written_tensor_is_recorded_once() -> None:
    eager = OfWritten()
    lowered = aten_recompute.lower(torch.jit.script(eager), "none")
    for _ in range(3):
        found = []
        for module in (eager, lowered):
            torch.manual_seed(0)
            x = points().detach().requires_grad_(True)
            gradient = module(x)
            gradient.square().sum().backward()
            found.append([gradient.detach(), x.grad])
        assert_close(found[1], found[0], 0.0)
    assert len(regions(lowered)) == 1


class FreedOneWayOfTwo(nn.Module):
    """Of two ways from the input to the energy, the first gradient frees one: relu has saved its result."""

    def forward(self, x: Tensor) -> Tensor:
        energy = (torch.relu(x) + x * 0.5).sum()
        first = torch.autograd.grad([energy], [x])[0]
        second = torch.autograd.grad([energy], [x])[0]
        assert first is not None
        assert second is not None
        return first + second


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_second_gradient_raises_if_one_of_its_ways_is_freed(strategy: str) -> None:
    lowered = lowered_copy(torch.jit.script(FreedOneWayOfTwo()), strategy)
    for module in (FreedOneWayOfTwo(), lowered, lowered):
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            module(torch.randn(3, requires_grad=True))


class FreesAWrite(nn.Module):
    """Eager's graph of the state has saved no tensor, but what stands for the write in it runs once."""

    def __init__(self, retain_graph: bool) -> None:
        super().__init__()
        self.retain_graph = retain_graph

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = x * 1.25
        state[0] = 0.5
        gradient = torch.autograd.grad([state.sum()], [x], retain_graph=self.retain_graph)[0]
        assert gradient is not None
        return state, gradient


@pytest.mark.parametrize("retain_graph", [False, True])
def test_a_gradient_through_a_write_frees_it(retain_graph: bool) -> None:
    net = FreesAWrite(retain_graph)
    lowered = lowered_copy(torch.jit.script(net), "all")
    gradients = []
    for module in (net, lowered, lowered):
        x = torch.ones(3, 2, requires_grad=True)
        state, gradient = module(x)
        if retain_graph:
            gradients.append([gradient, *torch.autograd.grad(state.sum(), x)])
            continue
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            state.sum().backward()
    for each in gradients[1:]:
        assert_same(each, gradients[0])


class OfAnotherArgument(nn.Module):
    """A gradient whose only target is an argument that the output does not depend on."""

    def energy(self, x: Tensor) -> Tensor:
        return x.sin()

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        energy = self.energy(x)
        gradient = torch.autograd.grad([energy.sum()], [y], allow_unused=True)[0]
        return energy, y.cos() if gradient is None else gradient


class OfAnotherArgumentAgain(OfAnotherArgument):
    """The output is itself a gradient, which requires grad where the argument does."""

    def energy(self, x: Tensor) -> Tensor:
        leaf = torch.ones_like(x).requires_grad_()
        gradient = torch.autograd.grad([torch.mm(leaf, x).sum()], [leaf], create_graph=True)[0]
        assert gradient is not None
        return gradient.sin()


@pytest.mark.lowered_only
@pytest.mark.parametrize("of_y", [True, False])
@pytest.mark.parametrize("of_x", [True, False])
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("model", [OfAnotherArgument, OfAnotherArgumentAgain])
def test_no_target_that_the_output_depends_on(model: type[nn.Module], autocast: bool, of_x: bool, of_y: bool) -> None:
    module = model()
    lowered = lowered_copy(module, "all")
    for needs_both in (True, False, True):
        results = []
        for each in (module, lowered):
            x = torch.ones(3, 3, requires_grad=needs_both or of_x)
            y = torch.ones(3, requires_grad=needs_both or of_y)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                if not (x.requires_grad and y.requires_grad):
                    with pytest.raises(RuntimeError, match="does not require grad"):
                        each(x, y)
                    continue
                energy, gradient = each(x, y)
            torch.autograd.backward([energy, gradient], [torch.ones_like(energy), torch.ones(3)])
            results.append([energy, gradient, x.grad, y.grad])
        if results:
            assert_same(results[1], results[0])
    specialisations = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert min(len(each["regions"]) for each in specialisations) == 1


class AskedAgain(nn.Module):
    """Asks for the gradient of what it was computed from in vain, twice."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        energy = (x**3).sum()
        gradient = torch.autograd.grad([energy], [x, y], create_graph=True, allow_unused=True)[0]
        assert gradient is not None
        result = energy + gradient.sum()
        again = torch.autograd.grad([result], [y], create_graph=True, allow_unused=True)[0]
        return result + 1000.0 if again is None else result


def test_an_unused_target_stays_unused() -> None:
    module = AskedAgain()
    lowered = lowered_copy(module, "none")
    results = []
    for each in (module, lowered):
        x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        result = each(x, y)
        result.backward()
        results.append([result, x.grad, y.grad])
    assert_same(results[1], results[0])


class OnlyAsked(nn.Module):
    """Reads of a gradient only whether there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        energy = (self.weight**2 * x).sum()
        gradient = torch.autograd.grad([energy], [self.weight], allow_unused=True)[0]
        return energy if gradient is None else energy * 1.5


@pytest.mark.parametrize("is_frozen", [False, True], ids=["freed", "frozen"])
def test_a_gradient_that_is_not_read_frees_and_raises(is_frozen: bool) -> None:
    module = OnlyAsked().requires_grad_(not is_frozen)
    lowered = lowered_copy(module, "none")
    for each in (module, lowered, lowered):
        with pytest.raises(RuntimeError, match="does not require grad" if is_frozen else "a second time"):
            each(torch.ones(3)).backward()
