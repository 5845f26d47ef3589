"""Shapes and operation counts of operators that a user defines."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import estimate, profile, register_flops, register_rule, register_shape
from support.user_operators import scaled_tanh_backward

library = torch.library.Library("recompute_shapes", "DEF")
numbers = itertools.count()
X = torch.randn(64, 16)


def shape(x, scale: float):
    return torch.empty_like(x)


def flops(x, result):
    return 7 * x.numel() + result.numel()


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.scale = inputs[1]
    ctx.save_for_backward(output)


def gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return grad * (ctx.scale - ctx.saved_tensors[0] ** 2 / ctx.scale), None


def define(schema: str = "(Tensor x, float scale) -> Tensor") -> str:
    """Defines an operator for the CPU that has no kernel for meta tensors; returns its name."""
    name = f"tanh{next(numbers)}"
    library.define(name + schema)
    library.impl(name, lambda x, scale: x.tanh() * scale, "CPU")
    torch.library.register_autograd(f"recompute_shapes::{name}", gradient, setup_context=keep, lib=library)
    return f"recompute_shapes::{name}"


def net(op: str) -> torch.jit.ScriptModule:
    function = getattr(torch.ops.recompute_shapes, op.partition("::")[2])

    traced: torch.jit.ScriptModule = torch.jit.trace(Wrapped(function), X)
    return traced


class Wrapped(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.function(self.linear(x), 2.0), 2.0).sum()


def peak_of_a_step(module: torch.jit.ScriptModule) -> int:
    lowered = aten_recompute.lower(module, "budget", memory_budget=1.0, cost_model="flops")
    lowered(X)
    variant = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"][0]["variants"][0]
    return variant["unplanned_peak_bytes"]


@pytest.mark.parametrize("has_rule", [False, True], ids=["tape", "rule"])
def test_an_operator_with_a_shape_is_estimated(has_rule: bool) -> None:
    op = define()
    if has_rule:
        register_rule(op, backward=scaled_tanh_backward)
    module = net(op)
    with pytest.raises(ValueError, match=f'{op}: .*register_shape\\("{op}", ...\\) gives them'):
        estimate(module, X)
    register_shape(op, shape)
    assert estimate(module, X)["unplanned_peak_bytes"] == pytest.approx(peak_of_a_step(module), rel=0.05)


def test_a_profile_has_the_sizes_that_a_shape_gives() -> None:
    op = define()
    register_rule(op, backward=scaled_tanh_backward)
    register_shape(op, shape)
    (first, _) = [n for n in profile(net(op), X, meta=True).nodes if n.operator == op]
    assert [each.sizes for each in first.results] == [(64, 16)]
    assert first.bytes == 64 * 16 * 4


def test_an_operator_with_a_fake_kernel_needs_no_shape() -> None:
    op = define()
    torch.library.register_fake(op, lambda x, scale: torch.empty_like(x), lib=library)
    module = net(op)
    assert estimate(module, X)["unplanned_peak_bytes"] == pytest.approx(peak_of_a_step(module), rel=0.05)


@pytest.mark.parametrize("has_rule", [False, True], ids=["tape", "rule"])
def test_flops_are_counted_as_registered(has_rule: bool) -> None:
    op = define()
    if has_rule:
        register_rule(op, backward=scaled_tanh_backward)
    register_shape(op, shape)
    register_flops(op, flops)
    counted = [n.flops for n in profile(net(op), X, meta=True).nodes if n.phase == "forward" and n.flops == 8 * 64 * 16]
    assert len(counted) == 2
    register_flops(op, lambda_of_zero, replace=True)
    assert 8 * 64 * 16 not in [n.flops for n in profile(net(op), X, meta=True).nodes]


def lambda_of_zero(x):
    return 0


def test_the_later_of_two_counts_needs_to_replace_the_earlier() -> None:
    op = define()
    register_rule(op, flops=lambda_of_zero)
    with pytest.raises(ValueError, match=f"register_flops: {op}: it has been given flops already; replace = true"):
        register_flops(op, flops)
    register_flops(op, flops, replace=True)


def two_results(x):
    return x, x


def unknown_parameter(y):
    return y


def wrong_type(x: int):
    return torch.empty(x)


def no_number(x):
    return x


def cannot_be_scripted(x):
    return [print for _ in x]


def register_twice(op: str) -> None:
    register_shape(op, shape)
    register_shape(op, shape)


ERRORS: dict[str, tuple[Callable[[str], None], str]] = {
    "results": (lambda op: register_shape(op, two_results), r"shape returns \(Tensor, Tensor\), expected \(Tensor\)"),
    "parameter": (lambda op: register_shape(op, unknown_parameter), 'has a parameter "y", which is none of scale, x'),
    "type": (lambda op: register_shape(op, wrong_type), '"x" is declared int, but is Tensor'),
    "script": (lambda op: register_shape(op, cannot_be_scripted), "shape cannot be scripted"),
    "number": (lambda op: register_flops(op, no_number), r"flops returns \(Tensor\), expected one int or float"),
    "no operator": (lambda op: register_shape(op + "x", shape), "there is no such operator"),
    "name": (lambda op: register_flops("tanh", flops), 'an operator is named "namespace::name"'),
    "twice": (register_twice, "it has been given a shape already"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_names_the_operator_and_the_reason_in_one_line(error: str) -> None:
    op = define()
    call, message = ERRORS[error]
    with pytest.raises(ValueError, match=message) as raised:
        call(op)
    assert str(raised.value).startswith(("register_shape: ", "register_flops: "))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("register", [register_shape, register_flops])
def test_what_is_no_name_or_function_is_a_type_error(register: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match="takes an operator's name"):
        register(torch.ops.aten.relu, shape)
    with pytest.raises(TypeError, match="is a function, not int"):
        register(define(), 3)
