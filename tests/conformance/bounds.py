"""Operators whose gradient changes at a bound, with arguments on, just inside and just outside of it.

PyTorch's samples are random numbers, which hardly ever lie on a bound. Where a type rounds a bound, as bfloat16 does
with 0.7, it matters whether a gradient compares the argument or the result with the bound, and whether it rounds it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

INTEGERS = {
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}

UNARY = [
    "acosh", "asinh", "atan", "ceil", "cos", "cosh", "digamma", "erf", "erfc", "exp2", "floor", "frac", "i0", "lgamma",
    "log", "log10", "log1p", "log2", "neg", "round", "sin", "sinc", "sinh", "square", "tan", "trunc",
]  # fmt: skip

LENGTH = 150  # several vectors and a rest, of each type


@dataclass(frozen=True)
class Bounded:
    """A function of one tensor, or of two, and the arguments at which its derivative is not continuous."""

    name: str
    function: Callable[..., Any]
    bounds: tuple[float, ...]
    tensors: int = 1


def around(bound: float, dtype: torch.dtype) -> Tensor:
    """Returns the bound in this type, its two neighbors, and the same with the other sign."""
    bits = torch.tensor([abs(bound)], dtype=dtype).view(INTEGERS[dtype])
    neighbors = torch.cat([bits - 1, bits, bits + 1]).clamp_min(0).view(dtype)
    return torch.cat([neighbors, -neighbors])


def arguments(case: Bounded, dtype: torch.dtype) -> list[Tensor]:
    """Returns as many tensors as the function takes. The second equals the first at every other element."""
    special = torch.tensor([0.0, -0.0, 0.25, -0.25, 30.0, -30.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    values = torch.cat([*(around(bound, dtype) for bound in (*case.bounds, 0.0)), special])
    first = values.repeat(-(-LENGTH // len(values)))[:LENGTH]
    second = torch.where(torch.arange(LENGTH) % 2 == 0, first, first.roll(1))
    return [first, second][: case.tensors]


def _with_target(loss: Callable[..., Tensor], **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: loss(x, torch.zeros_like(x), reduction="none", **options)


def _labels(x: Tensor) -> Tensor:
    return torch.where(torch.arange(x.numel()).reshape(x.shape) % 3 == 0, -1, 1)


def _finite(x: Tensor) -> Tensor:
    return x.nan_to_num(0.1, 0.7, -0.7)


def _rows(x: Tensor) -> Tensor:
    return _finite(x).reshape(10, -1)


def _unit(x: Tensor) -> Tensor:
    return x.nan_to_num(0.5).clamp(0.0, 1.0)


def _norm(x: Tensor, p: float) -> Tensor:
    return torch.linalg.vector_norm(_rows(x), p, 1)


def _logits_loss(x: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target, reduction="none")


def _cosine_loss(x: Tensor, y: Tensor) -> Tensor:
    return F.cosine_embedding_loss(_rows(x), _rows(y), torch.ones(10))


def _hardtanh(lower: float, upper: float) -> Bounded:
    text = f"hardtanh({lower:.3g}, {upper:.3g})"
    return Bounded(text, lambda x: F.hardtanh(x, lower, upper), (lower, upper))


CASES: list[Bounded] = [
    # 0.7 is rounded down to bfloat16 and up to half, 0.1 up and down, 0.3 up in both.
    *(_hardtanh(*bounds) for bounds in ((-1.0, 1.0), (-0.5, 0.7), (-0.1, 0.1), (-0.3, 0.3), (-1 / 3, 0.7), (0.1, 0.7))),
    Bounded("hardtanh_", lambda x: F.hardtanh(x, -0.1, 0.7, inplace=True), (0.1, 0.7)),
    Bounded("relu", F.relu, ()),
    Bounded("relu_", torch.relu_, ()),
    Bounded("relu6", F.relu6, (6.0,)),
    Bounded("relu6_", lambda x: F.relu6(x, inplace=True), (6.0,)),
    Bounded("clamp", lambda x: x.clamp(-0.1, 0.7), (0.1, 0.7)),
    Bounded("clamp_", lambda x: x.clamp_(-0.1, 0.7), (0.1, 0.7)),
    Bounded("clamp_min", lambda x: x.clamp_min(0.7), (0.7,)),
    Bounded("clamp_max", lambda x: x.clamp_max(0.1), (0.1,)),
    Bounded("clamp to one number", lambda x: x.clamp(min=0.7), (0.7,)),
    Bounded("clamp to tensors", lambda x, y: x.clamp(y, y.abs()), (0.1,), 2),
    Bounded("clamp to one tensor", lambda x, y: x.clamp(max=y), (0.1,), 2),
    Bounded("threshold", lambda x: F.threshold(x, 0.7, 2.0), (0.7,)),
    Bounded("threshold_", lambda x: F.threshold(x, 0.1, 2.0, inplace=True), (0.1,)),
    Bounded("hardsigmoid", F.hardsigmoid, (3.0,)),
    Bounded("hardswish", F.hardswish, (3.0,)),
    Bounded("hardswish_", lambda x: F.hardswish(x, inplace=True), (3.0,)),
    Bounded("hardshrink", lambda x: F.hardshrink(x, 0.7), (0.7,)),
    Bounded("softshrink", lambda x: F.softshrink(x, 0.1), (0.1,)),
    Bounded("elu", lambda x: F.elu(x, 0.7), (0.7,)),
    Bounded("elu_", lambda x: F.elu(x, 0.7, inplace=True), (0.7,)),
    Bounded("selu", F.selu, ()),
    Bounded("selu_", lambda x: F.selu(x, inplace=True), ()),
    Bounded("celu", lambda x: F.celu(x, 0.7), (0.7,)),
    Bounded("celu_", lambda x: F.celu(x, 0.7, inplace=True), (0.7,)),
    Bounded("leaky_relu", lambda x: F.leaky_relu(x, 0.1), ()),
    Bounded("leaky_relu with a slope that vanishes", lambda x: F.leaky_relu(x, 1e-30), ()),
    Bounded("leaky_relu with a negative slope", lambda x: F.leaky_relu(x, -0.3), ()),
    Bounded("leaky_relu without a slope", lambda x: F.leaky_relu(x, 0.0), ()),
    Bounded("leaky_relu_", lambda x: F.leaky_relu(x, 0.1, inplace=True), ()),
    Bounded("prelu", lambda x, y: F.prelu(x, y.flatten()[1:2]), (), 2),
    Bounded("softplus", lambda x: F.softplus(x, 0.7, 0.1), (0.1, 0.7, 0.1 / 0.7)),
    Bounded("logsigmoid", F.logsigmoid, ()),
    Bounded("sigmoid", torch.sigmoid, (10.0, 20.0)),
    Bounded("tanh", torch.tanh, (4.0, 10.0)),
    Bounded("gelu", F.gelu, (3.0,)),
    Bounded("gelu by tanh", lambda x: F.gelu(x, approximate="tanh"), (3.0,)),
    Bounded("silu", F.silu, (10.0,)),
    Bounded("mish", F.mish, (10.0, 20.0)),
    Bounded("softsign", F.softsign, (1.0,)),
    Bounded("tanhshrink", F.tanhshrink, (0.1,)),
    Bounded("exp", torch.exp, (0.7, 11.0)),
    Bounded("expm1", torch.expm1, (0.1, 0.7)),
    Bounded("sqrt", torch.sqrt, (0.1,)),
    Bounded("rsqrt", torch.rsqrt, (0.1,)),
    Bounded("reciprocal", torch.reciprocal, (0.1,)),
    Bounded("logit", lambda x: torch.logit(x, 0.1), (0.1, 0.9)),
    Bounded("abs", torch.abs, ()),
    Bounded("sgn", torch.sgn, ()),
    Bounded("asin", torch.asin, (1.0,)),
    Bounded("acos", torch.acos, (1.0,)),
    Bounded("atanh", torch.atanh, (1.0,)),
    Bounded("erfinv", torch.erfinv, (1.0,)),
    Bounded("pow to a number", lambda x: x.pow(0.7), (0.1, 1.0)),
    Bounded("pow of a number", lambda x: torch.pow(0.7, x), (0.1, 1.0)),
    Bounded("pow", torch.pow, (0.1, 1.0), 2),
    Bounded("xlogy", torch.xlogy, (0.1, 1.0), 2),
    Bounded("atan2", torch.atan2, (0.1,), 2),
    Bounded("hypot", torch.hypot, (0.1,), 2),
    Bounded("nan_to_num", _finite, (0.1, 0.7)),
    Bounded("maximum", torch.maximum, (0.1,), 2),
    Bounded("minimum", torch.minimum, (0.1,), 2),
    Bounded("fmax", torch.fmax, (0.1,), 2),
    Bounded("fmin", torch.fmin, (0.1,), 2),
    Bounded("max", torch.max, (0.1,)),
    Bounded("min of equal elements", lambda x: _finite(x).clamp(0.7).min(), (0.7,)),
    Bounded("amax", lambda x: _rows(x).clamp(max=0.7).amax(1), (0.7,)),
    Bounded("amin", lambda x: _rows(x).clamp(min=0.1).amin(0, keepdim=True), (0.1,)),
    Bounded("max of a dimension", lambda x: x.reshape(10, -1).max(1)[0], (0.1,)),
    Bounded("median", lambda x: _finite(x).median(), (0.1,)),
    Bounded("where", lambda x, y: torch.where(x > 0.7, x * 0.1, y), (0.7,), 2),
    Bounded("masked_fill", lambda x: x.masked_fill(x <= 0.1, 0.7), (0.1,)),
    Bounded("smooth_l1_loss", _with_target(F.smooth_l1_loss, beta=0.7), (0.7,)),
    Bounded("huber_loss", _with_target(F.huber_loss, delta=0.1), (0.1,)),
    Bounded("l1_loss", _with_target(F.l1_loss), (0.1,)),
    Bounded("soft_margin_loss", lambda x: F.soft_margin_loss(x, _labels(x).to(x.dtype), reduction="none"), (0.1,)),
    Bounded("hinge_embedding_loss", lambda x: F.hinge_embedding_loss(x, _labels(x), 0.7, reduction="none"), (0.7,)),
    Bounded("margin_ranking_loss", lambda x, y: F.margin_ranking_loss(x, y, _labels(x), 0.1), (0.1,), 2),
    Bounded("norm", lambda x: _rows(x).norm(dim=0), (0.1,)),
    Bounded("norm of zeros", lambda x: (_finite(x) * 0).norm(), (0.1,)),
    Bounded("largest absolute value", lambda x: _finite(x).norm(torch.inf), (0.7,)),
    Bounded("normalize", lambda x: F.normalize(_rows(x), eps=0.7), (0.1,)),
    Bounded("cosine_similarity", lambda x, y: F.cosine_similarity(_finite(x), _finite(y), 0, 0.7), (0.1,), 2),
    Bounded("div rounded down", lambda x, y: torch.div(x, y, rounding_mode="floor"), (0.1, 1.0), 2),
    Bounded("lerp", lambda x, y: torch.lerp(x, y, y), (0.1, 1.0), 2),
    Bounded("addcmul", lambda x, y: torch.addcmul(x, y, x, value=0.7), (0.1, 1.0), 2),
    Bounded("addcdiv", lambda x, y: torch.addcdiv(x, y, x, value=0.7), (0.1, 1.0), 2),
    Bounded("prod", lambda x: _rows(x).clamp(-1, 1).prod(1), (0.1,)),
    Bounded("prod of all", lambda x: _rows(x)[0].clamp(-1, 1).prod(), (0.1,)),
    Bounded("cumprod", lambda x: _rows(x).clamp(-1, 1).cumprod(1), (0.1,)),
    Bounded("logsumexp", lambda x: x.nan_to_num(0.1, 0.7, -torch.inf).reshape(10, -1).logsumexp(1), (0.1,)),
    Bounded("softmax", lambda x: x.nan_to_num(0.1, 0.7, -torch.inf).reshape(10, -1).softmax(1), (0.1,)),
    Bounded("log_softmax", lambda x: x.nan_to_num(0.1, 0.7, -torch.inf).reshape(10, -1).log_softmax(1), (0.1,)),
    Bounded("softmax of masked rows", lambda x: (_rows(x) - torch.inf).softmax(1), (0.1,)),
    Bounded("std of equal elements", lambda x: (_rows(x) * 0).std(1), (0.1,)),
    Bounded("var of equal elements", lambda x: (_rows(x) * 0).var(1), (0.1,)),
    *(Bounded(f"norm of order {p}", partial(_norm, p=p), (0.1, 0.7)) for p in (0.5, 1.0, 1.5, 3.0, -torch.inf)),
    Bounded("pairwise_distance", lambda x, y: F.pairwise_distance(_rows(x), _rows(y)), (0.1,), 2),
    Bounded("cdist", lambda x, y: torch.cdist(_rows(x), _rows(y)), (0.1,), 2),
    Bounded("layer_norm of equal elements", lambda x: F.layer_norm(_rows(x) * 0, [_rows(x).size(1)]), (0.1,)),
    Bounded("sort", lambda x: _rows(x).sort(1)[0], (0.1,)),
    Bounded("topk", lambda x: _rows(x).topk(2, 1)[0], (0.1,)),
    Bounded("cummax", lambda x: _rows(x).cummax(1)[0], (0.1,)),
    Bounded("max_pool1d", lambda x: F.max_pool1d(_rows(x).clamp(max=0.7), 2, 1), (0.1, 0.7)),
    Bounded("max_pool1d of NaN", lambda x: F.max_pool1d(x.reshape(10, -1), 2), (0.1, 0.7)),
    Bounded("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(_rows(x).clamp(max=0.7), 2), (0.1, 0.7)),
    Bounded("binary_cross_entropy", lambda x, y: F.binary_cross_entropy(_unit(x), _unit(y)), (1.0,), 2),
    Bounded("binary_cross_entropy_with_logits", lambda x, y: _logits_loss(x, _unit(y)), (1.0,), 2),
    Bounded("kl_div", lambda x, y: F.kl_div(x, _unit(y), reduction="none"), (1.0,), 2),
    Bounded("kl_div of logarithms", lambda x, y: F.kl_div(x, y, reduction="none", log_target=True), (1.0,), 2),
    Bounded("poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y.abs(), full=True, reduction="none"), (1.0,), 2),
    Bounded("cross_entropy", lambda x: F.cross_entropy(_rows(x), torch.arange(10) % 3, label_smoothing=0.1), (0.7,)),
    Bounded("multi_margin_loss", lambda x: F.multi_margin_loss(_rows(x), torch.arange(10) % 3, margin=0.7), (0.7,)),
    Bounded("triplet_margin_loss", lambda x, y: F.triplet_margin_loss(_rows(x), _rows(y), _rows(y)), (0.7,), 2),
    Bounded("cosine_embedding_loss", _cosine_loss, (0.1,), 2),
    *(Bounded(name, getattr(torch, name), (0.1, 1.0)) for name in UNARY),
    *(
        Bounded(name, getattr(torch, name), (0.1, 1.0), 2)
        for name in ("add", "copysign", "div", "fmod", "logaddexp", "logaddexp2", "mul", "remainder", "sub")
    ),
]
