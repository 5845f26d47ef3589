"""Operators as users define them, with autograd formulas for eager, for the tests of register_rule."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute._report_types import Variant
from support.helpers import assert_same, step

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "min_cut": {"strategy": "min_cut"},
    "budget": {"strategy": "budget", "time_budget": 1.4, "cost_model": "flops"},
}

# Every kernel appends its name when it runs. In eager, torch.library's autograd formula calls the kernels of the
# backward; in a lowered module, a rule does.
calls: list[str] = []

library = torch.library.Library("recompute_rules", "DEF")


def define(schema: str, kernel: Callable[..., Any], tags: tuple[Any, ...] = ()) -> None:
    name = schema[: schema.index("(")]
    library.define(schema, tags=tags)

    def recorded(*arguments: Any) -> Any:
        calls.append(name)
        return kernel(*arguments)

    library.impl(name, recorded, "CPU")


def autograd(name: str, backward: Callable[..., Any], keep: Callable[..., tuple[Any, ...]]) -> None:
    """Registers a formula for eager. ``keep(inputs, output)`` returns what ``backward`` reads beside the gradients."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        kept = keep(inputs, output)
        ctx.plain = [None if isinstance(value, Tensor) else value for value in kept]
        ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in kept))

    def run(ctx: Any, *gradients: Any) -> Any:
        kept = [p if t is None else t for p, t in zip(ctx.plain, ctx.saved_tensors, strict=True)]
        return backward(ctx, *gradients, *kept)

    torch.library.register_autograd(f"recompute_rules::{name}", run, setup_context=setup, lib=library)


# ---- the operators ----

define("scaled_tanh(Tensor x, float scale) -> Tensor", lambda x, scale: x.tanh() * scale)
autograd(
    "scaled_tanh",
    lambda ctx, grad, y, scale: (grad * (scale - y * y / scale), None),
    lambda inputs, y: (y, inputs[1]),
)


def scaled_tanh_backward(grad, result, scale: float):
    return grad * (scale - result * result / scale)


# An operator with two outputs, an Optional[Tensor] and an int.
define(
    "affine(Tensor x, Tensor weight, Tensor? bias, int dim) -> (Tensor, Tensor)",
    lambda x, weight, bias, dim: (
        x * weight if bias is None else x * weight + bias,
        x.cumsum(dim),
    ),
)


def affine_x(grad: Tensor | None, grad1: Tensor | None, weight, dim: int):
    if grad is not None:
        gradient = grad * weight
        if grad1 is not None:
            gradient = gradient + grad1.flip([dim]).cumsum(dim).flip([dim])
        return gradient
    else:
        assert grad1 is not None
        return grad1.flip([dim]).cumsum(dim).flip([dim])


def affine_weight(grad, x):
    return (grad * x).sum(0)


def affine_bias(grad):
    return grad.sum(0)


AFFINE: dict[str, Callable[..., Any]] = {"weight": affine_weight, "bias": affine_bias, "x": affine_x}
autograd(
    "affine",
    lambda ctx, grad, grad1, x, weight, bias, dim: (
        affine_x(grad, grad1, weight, dim),
        affine_weight(grad, x) if ctx.needs_input_grad[1] else None,
        None if bias is None else affine_bias(grad),
        None,
    ),
    lambda inputs, output: inputs,
)

# An operator with one function for all gradients; indices have no gradient.
define("lookup(Tensor table, Tensor indices, float scale) -> Tensor", lambda t, i, s: t[i] * s)


def lookup_backward(grad, table, indices, scale: float):
    return torch.zeros_like(table).index_add(0, indices, grad * scale), None


autograd(
    "lookup",
    lambda ctx, grad, table, indices, scale: (*lookup_backward(grad, table, indices, scale), None),
    lambda inputs, output: inputs,
)

# An operator whose forward for training also returns the inverse of the norm.
define("unit(Tensor x, float eps) -> Tensor", lambda x, eps: x * (x.square().sum(-1, True) + eps).rsqrt())


def unit_forward(x, eps: float):
    inverse = (x.square().sum(-1, True) + eps).rsqrt()
    return x * inverse, inverse


def unit_backward(grad, x, inverse):
    return grad * inverse - x * (inverse * inverse * inverse) * (grad * x).sum(-1, True)


autograd(
    "unit",
    lambda ctx, grad, x, eps: (unit_backward(grad, x, unit_forward(x, eps)[1]), None),
    lambda inputs, output: inputs,
)

library.define("half(Tensor(a) x) -> Tensor(a)")

# An operator with a list of tensors as an argument.
define("weighted(Tensor[] xs, float weight) -> Tensor", lambda xs, weight: xs[0] * weight + xs[1])


def weighted_backward(grad, weight: float):
    return [grad * weight, grad]


# An operator that returns a list. The gradient of a part that is not used is None.
define("thirds(Tensor x) -> Tensor[]", lambda x: [part.clone() for part in x.split([3, 3, 2], -1)])


def thirds_backward(grads: list[Tensor | None], x):
    parts: list[Tensor] = []
    for part, grad in zip(x.split([3, 3, 2], -1), grads):  # noqa: B905  (TorchScript's zip has no strict)
        parts.append(torch.zeros_like(part) if grad is None else grad)
    return torch.cat(parts, -1)


class Tanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.scaled_tanh(x, 1.7)


class Affine(nn.Module):
    bias: Tensor | None

    def __init__(self, bias: bool, which: str = "both") -> None:
        super().__init__()
        self.which = which
        self.weight = nn.Parameter(torch.rand(8))
        self.bias = nn.Parameter(torch.rand(8)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y, sums = torch.ops.recompute_rules.affine(x, self.weight, self.bias, 1)
        if self.which == "first":
            return y
        if self.which == "second":
            return sums * 0.3
        return y * sums.sigmoid()


class Thirds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        parts = torch.ops.recompute_rules.thirds(x)
        return torch.cat([parts[2], parts[0].sigmoid(), parts[0]], -1)


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        indices = x[:, 0].abs().mul(100).long() % 5
        return x * torch.ops.recompute_rules.lookup(self.table, indices, 0.5)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.unit(x, 1e-3)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.weighted([x.sigmoid(), x * self.other], 0.5)


state = torch.zeros(())


def _counting(x: Tensor) -> Tensor:
    state.add_(1)
    return x * 2


define("state(Tensor x) -> Tensor", _counting)
autograd("state", lambda ctx, grad: grad * 2, lambda inputs, output: ())


def state_backward(grad):
    return grad * 2


def state_replay(x):
    return x * 2


class State(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.state(x).sigmoid()


define("noise(Tensor x) -> Tensor", lambda x: x * torch.rand_like(x))


def noise_backward(grad, x, result):
    return grad * (result / x)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.noise(x)


class Net(nn.Module):
    """Blocks of a linear layer, the operator and a relu."""

    def __init__(self, make: Callable[[], nn.Module], depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), make(), nn.ReLU()) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


CASES: dict[str, tuple[str, Callable[[], nn.Module], dict[str, Any]]] = {
    "one": ("scaled_tanh", Tanh, {"backward": scaled_tanh_backward}),
    "two_outputs": ("affine", lambda: Affine(True), {"backward": AFFINE}),
    "no_bias": ("affine", lambda: Affine(False), {"backward": AFFINE}),
    "first_output": ("affine", lambda: Affine(True, "first"), {"backward": AFFINE}),
    "indices": ("lookup", Lookup, {"backward": lookup_backward}),
    "extras": (
        "unit",
        Unit,
        {"backward": unit_backward, "forward": unit_forward, "extras": ["inverse"]},
    ),
}


def variant(lowered: torch.jit.ScriptModule) -> Variant:
    """Returns the report of the last variant of the only region."""
    (method,) = aten_recompute.report(lowered)["methods"]
    (region,) = method["specialisations"][0]["regions"]
    return region["variants"][-1]


def compare(net: nn.Module, lowered: torch.jit.ScriptModule, steps: int = 2, rows: int = 6) -> None:
    """Asserts that both give the same outputs and gradients."""
    torch.manual_seed(3)
    for seed in range(steps):
        x = torch.randn(rows, 8)
        y = x.clone().requires_grad_()
        x.requires_grad_()
        expected = step(net, list(net.parameters()), (x,), seed)
        result = step(lowered, list(lowered.parameters()), (y,), seed)
        assert_same(result[0] + result[1] + [y.grad], expected[0] + expected[1] + [x.grad])
