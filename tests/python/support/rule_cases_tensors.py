"""Cases of test_rules.py: shapes, softmax, indexing, reductions, pooling and attention."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16


@dataclass
class Case:
    """A function to differentiate: the lines of its body, the last of which is the result, and its arguments."""

    name: str
    body: str
    factories: "dict[str, Factory]"
    dtypes: tuple[torch.dtype, ...] = (F32, F64)
    tolerance: float = 0

    def inputs(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        return {name: factory(dtype) for name, factory in self.factories.items()}


Factory = Callable[[torch.dtype], torch.Tensor]


def g(*size: int) -> Factory:
    """Normally distributed numbers that require grad."""
    return lambda dtype: torch.randn(size).to(dtype).requires_grad_()


def strided(*size: int) -> Factory:
    """Normally distributed numbers that require grad and are not contiguous."""
    return lambda dtype: (
        torch.randn(*size, 2).to(dtype)[..., 1].transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()
    )


def last(*size: int) -> Factory:
    """Normally distributed numbers that require grad, in channels-last layout."""
    return lambda dtype: torch.randn(size).to(dtype).to(memory_format=torch.channels_last).requires_grad_()


def cplx(*size: int) -> Factory:
    """Complex numbers that require grad."""
    return lambda dtype: torch.randn(size, dtype=torch.complex64 if dtype == F32 else torch.complex128).requires_grad_()


def ties(*size: int) -> Factory:
    """Integers from -2 to 2 that require grad, so that there are equal elements and zeros."""
    return lambda dtype: torch.randint(-2, 3, size).to(dtype).requires_grad_()


def const(*size: int) -> Factory:
    return lambda dtype: torch.randn(size).to(dtype)


def ints(high: int, *size: int) -> Factory:
    return lambda dtype: torch.randint(0, high, size)


def bools(*size: int) -> Factory:
    return lambda dtype: torch.rand(size) > 0.4


def fixed(value: object) -> Factory:
    return lambda dtype: torch.tensor(value)


CASES: list[Case] = []


def case(
    name: str, body: str, dtypes: tuple[torch.dtype, ...] = (F32, F64), tolerance: float = 0, **factories: Factory
) -> None:
    CASES.append(Case(name, body, factories, dtypes, tolerance))


# ---- shape ----
ALL = (F32, F64, BF16)
case("view", "x.view(4, 6)", x=g(2, 3, 4), dtypes=ALL)
case("view_minus_one", "x.view(-1)", x=g(2, 3, 4))
case("view_no_gradient", "x.view(-1) , y.view(-1)", x=g(2, 3), y=const(2, 3))
case("reshape_copies", "x.transpose(0, 1).reshape(-1)", x=g(3, 4), dtypes=ALL)
case("reshape_strided", "x.reshape(2, -1)", x=strided(2, 3, 4))
case("as_strided", "torch.as_strided(x, [2, 3], [1, 2]) * 2", x=g(3, 4))
case("as_strided_overlaps", "torch.as_strided(x, [3, 3], [2, 1], 1) * 2", x=g(3, 4))
case("as_strided_of_transposed", "torch.as_strided(x.t(), [2, 2], [5, 1]) * 2", x=g(3, 4))
case("as_strided_of_expanded", "torch.as_strided(x.expand(3, 4), [2, 2], [0, 1]) * 2", x=g(4))
case("as_strided_of_part", "torch.as_strided(x[1:, 1:], [2, 2], [4, 2]) * 2", x=g(3, 4))
case("view_as", "x.view_as(y)", x=g(6), y=const(2, 3))
case("reshape_as", "x.t().reshape_as(y)", x=g(3, 2), y=const(6))
case("flatten", "x.flatten(1)", x=g(2, 3, 4))
case("flatten_0d", "x.flatten()", x=g())
case("flatten_negative", "torch.flatten(x.transpose(1, 2), -2, -1)", x=g(2, 3, 4))
case("unflatten", "x.unflatten(-1, [2, 2])", x=g(3, 4))
case("ravel", "x.t().ravel()", x=g(3, 4))
case("t", "x.t()", x=g(3, 4))
case("t_1d", "x.t()", x=g(3))
case("T", "x.T", x=g(3, 4))
case("mT", "x.mT", x=g(2, 3, 4))
case("transpose", "x.transpose(-1, 0)", x=g(2, 3, 4))
case("permute", "x.permute(2, 0, 1)", x=g(2, 3, 4))
case("permute_negative", "x.permute(-1, 0, -2)", x=g(2, 3, 4))
case("movedim", "x.movedim(0, -1)", x=g(2, 3, 4))
case("movedim_list", "x.movedim([0, 1], [2, 0])", x=g(2, 3, 4))
case("moveaxis", "torch.moveaxis(x, 0, 1)", x=g(2, 3, 4))
case("swapaxes", "x.swapaxes(0, 1)", x=g(2, 3))
case("unsqueeze", "x.unsqueeze(1)", x=g(2, 3))
case("unsqueeze_negative", "x.unsqueeze(-1)", x=g(2, 3))
case("unsqueeze_0d", "x.unsqueeze(0)", x=g())
case("squeeze", "x.squeeze()", x=g(1, 3, 1))
case("squeeze_dim", "x.squeeze(-1)", x=g(1, 3, 1))
case("squeeze_dim_nothing", "x.squeeze(1)", x=g(1, 3, 1))
case("squeeze_dims", "x.squeeze([0, 2])", x=g(1, 3, 1))
case("squeeze_0d", "x.squeeze(0)", x=g())
case("expand", "x.expand(4, 3, -1)", x=g(3, 1), dtypes=ALL)
case("expand_0d", "x.expand(2, 2)", x=g())
case("expand_as", "x.expand_as(y)", x=g(1, 3), y=const(2, 3))
case("broadcast_to", "x.broadcast_to([2, 3])", x=g(3))
case("contiguous", "x.t().contiguous()", x=g(3, 4))
case("contiguous_channels_last", "x.contiguous(memory_format=torch.channels_last)", x=g(2, 3, 4, 4))
case("clone", "x.clone()", x=g(3))
case("to_dtype", "x.to(torch.float64)", x=g(3), dtypes=ALL)
case("to_same", "x.to(x.dtype).flip(0)", x=g(3))
case("to_half", "x.half(), x.float(), x.double()", x=g(3), dtypes=ALL)
case("to_bfloat16", "x.to(torch.bfloat16)", x=g(3))
case("to_device", 'x.to("cpu")', x=g(3))
case("to_device_dtype", "x.to(x.device, torch.float64)", x=g(3))
case("to_other", "x.to(y)", x=g(3), y=fixed(1.0))
case("type_as", "x.type_as(y)", x=g(3), y=fixed(1.0))
case("cat", "torch.cat([x, y], 1)", x=g(2, 3), y=g(2, 1), dtypes=ALL)
case("cat_negative", "torch.cat([x, y, x], -1)", x=g(2, 3), y=g(2, 1))
case("cat_no_gradient", "torch.cat([x, y], 0)", x=g(2, 3), y=const(1, 3))
case("cat_types", "torch.cat([x, y.double()], 0)", x=g(2), y=g(3), dtypes=ALL)
case("cat_empty", "torch.cat([x, y], 1)", x=g(2, 3), y=g(0))
case("cat_split", "torch.cat(torch.split(x, 2), 0)", x=g(5, 3))
case("concat", "torch.concat([x, y])", x=g(2, 3), y=g(2, 3))
case("stack", "torch.stack([x, y, x], -1)", x=g(2, 3), y=g(2, 3), dtypes=ALL)
case("stack_0d", "torch.stack([x, y])", x=g(), y=g())
case("hstack", "torch.hstack([x, y])", x=g(2, 3), y=g(2, 1))
case("hstack_1d", "torch.hstack([x, y])", x=g(2), y=g())
case("vstack", "torch.vstack([x, y])", x=g(2, 3), y=g(3))
case("split", "a, b, c = x.split(2, 1)\nreturn a, c", x=g(3, 5), dtypes=ALL)
case("split_all", "a, b, c = x.split(2, 1)\nreturn c, b, a", x=g(3, 5))
case("split_item", "x.split(2, -1)[1]", x=g(3, 5))
case("split_sizes", "a, b = torch.split(x, [2, 3], -1)\nreturn b", x=g(3, 5))
case("split_with_sizes", "a, b = x.split_with_sizes([2, 3], 0)\nreturn a, b", x=g(5, 2))
case("unsafe_split_with_sizes", "a, b = torch.unsafe_split_with_sizes(x, [2, 3], 0)\nreturn a, b", x=g(5, 2))
case("chunk", "a, b, c = x.chunk(3, -1)\nreturn a, b, c.flip(0)", x=g(3, 8))
case("chunk_used_twice", "a, b = x.chunk(2, 0)\nreturn a, torch.cat([a, b])", x=g(4, 2))
case("tensor_split", "a, b, c = x.tensor_split(3, 1)\nreturn a, c", x=g(2, 7))
case("tensor_split_indices", "a, b, c = x.tensor_split([2, -3], 1)\nreturn a, c", x=g(2, 7))
case("tensor_split_overlapping", "a, b, c, d = x.tensor_split([5, 1, 9], 1)\nreturn a, b, c * c", x=g(2, 7))
case("unbind", "a, b, c = x.unbind(0)\nreturn a, c", x=g(3, 2), dtypes=ALL)
case("unbind_negative", "a, b = x.unbind(-1)\nreturn a, b", x=g(3, 2))
case("broadcast_tensors", "a, b = torch.broadcast_tensors(x, y)\nreturn a, b", x=g(3, 1), y=g(2))
case("broadcast_tensors_one", "a, b = torch.broadcast_tensors(x, y)\nreturn a", x=g(3, 1), y=g(2))
case("repeat", "x.repeat(2, 3)", x=g(3, 2), dtypes=ALL)
case("repeat_leading", "x.repeat(2, 1, 3)", x=g(3, 2))
case("repeat_zero", "x.repeat(0, 3)", x=g(3, 2))
case("tile", "x.tile([2])", x=g(3, 2))
case("tile_leading", "x.tile([2, 1, 2])", x=g(3, 2))
case("repeat_interleave", "x.repeat_interleave(3, dim=1)", x=g(3, 2))
case("repeat_interleave_negative", "x.repeat_interleave(2, dim=-1)", x=g(3, 2))
case("repeat_interleave_flat", "x.repeat_interleave(2)", x=g(3, 2))
case("flip", "x.flip([0, -1])", x=g(3, 2))
case("fliplr", "x.fliplr().flipud()", x=g(3, 2))
case("rot90", "x.rot90()", x=g(3, 2))
case("roll", "x.roll([1, -2], [0, 1])", x=g(3, 4))
case("roll_flat", "x.roll(2)", x=g(3, 4))
case("narrow", "x.narrow(1, 1, 2)", x=g(3, 4))
case("narrow_negative", "x.narrow(-1, -2, 2)", x=g(3, 4))
case("select", "x.select(0, 1), x[:, -1]", x=g(3, 4), dtypes=ALL)
case("select_many", "x[0], x[1], x[0]", x=g(3, 4))
case("slice", "x[1:], x[:, :-1], x[::2, 1:3]", x=g(4, 5), dtypes=ALL)
case("slice_strided", "x[:, 1:2]", x=strided(4, 5))
case("diagonal", "x.diagonal(1, -2, -1)", x=g(2, 3, 4))
case("diag_embed", "torch.diag_embed(x, 1)", x=g(2, 3))
case("tril_triu", "x.tril(), x.triu(1)", x=g(3, 4))
case("unfold", "x.unfold(1, 3, 2)", x=g(2, 7))
case("im2col", "F.unfold(x, 2, padding=1)", x=g(2, 3, 4, 4))
case("col2im", "F.fold(x, (4, 4), 2)", x=g(2, 12, 9))
case("pad_constant", "F.pad(x, [1, 2], value=1.5)", x=g(2, 3), dtypes=ALL)
case("pad_crop", "F.pad(x, [-1, 2, 1, 0])", x=g(2, 3))
case("pad_reflect_1d", 'F.pad(x, [1, 2], mode="reflect")', x=g(2, 3, 4))
case("pad_reflect_2d", 'F.pad(x, [1, 2, 0, 1], mode="reflect")', x=g(2, 3, 4, 4))
case("pad_reflect_3d", 'F.pad(x, [1, 1, 0, 1, 1, 0], mode="reflect")', x=g(1, 2, 3, 3, 3))
case("pad_replicate_1d", 'F.pad(x, [1, 2], mode="replicate")', x=g(2, 3, 4))
case("pad_replicate_2d", 'F.pad(x, [1, 2, 0, 1], mode="replicate")', x=last(2, 3, 4, 4))
case("pad_replicate_3d", 'F.pad(x, [1, 1, 0, 1, 1, 0], mode="replicate")', x=g(1, 2, 3, 3, 3))
case("pad_circular_1d", 'F.pad(x, [1, 2], mode="circular")', x=g(2, 3, 4), tolerance=1e-5)
case("pad_circular_2d", 'F.pad(x, [4, 3, 1, 2], mode="circular")', x=g(2, 3, 4, 4), tolerance=1e-5)
case("pixel_shuffle", "F.pixel_shuffle(x, 2)", x=g(2, 8, 3, 3))
case("pixel_unshuffle", "F.pixel_unshuffle(x, 2)", x=g(2, 2, 4, 4))
case("channel_shuffle", "F.channel_shuffle(x, 2)", x=g(2, 6, 2, 2))

case("adjoint", "x.adjoint().swapdims(0, 1)", x=cplx(2, 3, 4))
case("cat_complex", "torch.cat([x, y.to(x.dtype)])", x=cplx(2, 3), y=g(1, 3))
case("to_complex", "x.to(torch.complex128)", x=g(3))

# ---- softmax ----
case("softmax", "F.softmax(x, dim=-1)", x=g(3, 5), dtypes=(F32, F64, BF16, F16))
case("softmax_first", "torch.softmax(x, 0)", x=strided(3, 5))
case("softmax_0d", "torch.softmax(x, 0)", x=g())
case("softmax_dtype", "F.softmax(x, dim=1, dtype=torch.float64)", x=g(3, 5), dtypes=ALL)
case("softmax_from_half", "F.softmax(x, dim=1, dtype=torch.float32)", x=g(3, 5), dtypes=(F16, BF16))
case("log_softmax", "F.log_softmax(x, dim=1)", x=g(3, 5), dtypes=ALL)
case("log_softmax_dtype", "F.log_softmax(x, dim=1, dtype=torch.float64)", x=g(3, 5))
case("_softmax", "torch._softmax(x, 1, False), torch._log_softmax(x, 0, False)", x=g(3, 5))

# ---- indexing ----
case("index", "x[i]", x=g(5, 3), i=ints(5, 7), dtypes=ALL)
case("index_two", "x[i, j]", x=g(5, 3), i=ints(5, 7), j=ints(3, 7))
case("index_skips", "x[:, i]", x=g(5, 3), i=ints(3, 7))
case("index_mixed", "x[i, :, j]", x=g(5, 3, 4), i=ints(5, 6), j=ints(4, 6))
case("index_bool", "x[m]", x=g(5, 3), m=bools(5, 3))
case("index_select", "x.index_select(-1, i)", x=g(5, 3), i=ints(3, 7), dtypes=ALL)
case("gather", "x.gather(1, i)", x=g(5, 3), i=ints(3, 5, 4), dtypes=ALL)
case("gather_smaller", "x.gather(0, i)", x=g(5, 3), i=ints(5, 2, 2))
case("take_along_dim", "torch.take_along_dim(x, i, 1)", x=g(5, 3), i=ints(3, 1, 4))
case("take_along_dim_broadcast", "torch.take_along_dim(x, i, -1)", x=g(1, 3), i=ints(3, 4, 4))
case("take_along_dim_negative", "torch.take_along_dim(x, i - 3, 1)", x=g(5, 3), i=ints(3, 5, 4))
case("take_along_dim_flat", "torch.take_along_dim(x, i)", x=g(5, 3), i=ints(15, 4))
case("scatter", "x.scatter(1, i, y)", x=g(3, 6), i=fixed([[0, 2], [5, 3], [1, 4]]), y=g(3, 2))
case("scatter_value", "x.scatter(1, i, 2.0)", x=g(3, 6), i=ints(6, 3, 2))
case("scatter_add", "x.scatter_add(0, i, y)", x=g(3, 6), i=ints(3, 5, 6), y=g(5, 6))
case("scatter_add_source_only", "x.scatter_add(0, i, y)", x=const(3, 6), i=ints(3, 5, 6), y=g(5, 6))
case("index_add", "x.index_add(1, i, y)", x=g(3, 6), i=ints(6, 4), y=g(3, 4))
case("index_add_alpha", "x.index_add(0, i, y, alpha=0.5)", x=g(3, 6), i=ints(3, 4), y=g(4, 6))
case("index_copy", "x.index_copy(0, i, y)", x=g(3, 6), i=fixed([2, 0]), y=g(2, 6))
for reduce in ("sum", "mean", "prod", "amax", "amin"):
    for include in ("", ", include_self=False"):
        case(
            f"scatter_reduce_{reduce}{include}",
            f"x.scatter_reduce(0, i, y, '{reduce}'{include})",
            x=ties(3, 6),
            i=ints(3, 5, 6),
            y=ties(5, 6),
        )
    case(
        f"scatter_reduce_{reduce}_source",
        f"x.scatter_reduce(1, i, y, '{reduce}')",
        x=const(3, 6),
        i=ints(6, 3, 4),
        y=g(3, 4),
    )
    case(
        f"scatter_reduce_{reduce}_self",
        f"x.scatter_reduce(1, i, y, '{reduce}')",
        x=g(3, 6),
        i=ints(6, 3, 4),
        y=const(3, 4),
    )
case("index_fill", "x.index_fill(0, i, 1.5)", x=g(3, 6), i=fixed([2, 0]))
case("index_put", "x.index_put([i], y)", x=g(3, 6), i=fixed([2, 0]), y=g(2, 6))
case("index_put_accumulate", "x.index_put([i, j], y, accumulate=True)", x=g(3, 6), i=ints(3, 4), j=ints(6, 4), y=g(4))
case("index_put_broadcast", "x.index_put([i], y)", x=g(3, 6), i=fixed([2, 0]), y=g(6))
case("masked_fill", "x.masked_fill(m, -1e9)", x=g(3, 4), m=bools(3, 4), dtypes=ALL)
case("masked_fill_broadcast", 'x.masked_fill(m, float("-inf"))', x=g(2, 3, 4), m=bools(3, 1))
case("masked_fill_wider_mask", "x.masked_fill(m, 1.0)", x=g(3, 1), m=bools(2, 3, 4))
case("masked_fill_tensor", "x.masked_fill(m, y)", x=g(3, 4), m=bools(3, 4), y=g())
case("masked_select", "x.masked_select(m)", x=g(3, 4), m=bools(3, 4))
case("masked_select_broadcast", "x.masked_select(m)", x=g(3, 1), m=bools(3, 4))
case("where", "torch.where(m, x, y)", x=g(3, 4), y=g(3, 4), m=bools(3, 4), dtypes=ALL)
case("where_broadcast", "torch.where(m, x, y)", x=g(4), y=g(3, 1), m=bools(2, 3, 4))
case("where_one", "torch.where(m, x, y)", x=g(3, 4), y=const(3, 4), m=bools(3, 4))
case("where_types", "torch.where(m, x, y.double())", x=g(3, 4), y=g(), m=bools(3, 4))
case("where_scalar", "torch.where(m, x, 0.0), torch.where(m, 1.0, x)", x=g(3, 4), m=bools(3, 4), dtypes=ALL)

# ---- reductions ----
case("sum", "x.sum()", x=g(3, 4), dtypes=ALL)
case("sum_0d", "x.sum(), x.sum(0)", x=g())
case("sum_dim", "x.sum(-1), x.sum([0, 1]), x.sum(1, keepdim=True)", x=g(3, 4))
case("sum_dtype", "x.sum(dtype=torch.float64), x.sum(0, dtype=torch.float64)", x=g(3, 4), dtypes=ALL)
case("sum_strided", "x.sum(0)", x=strided(3, 4))
case("mean", "x.mean()", x=g(3, 4), dtypes=ALL)
case("mean_dim", "x.mean(-1), x.mean([0, 1]), x.mean(1, keepdim=True)", x=g(3, 4), dtypes=ALL)
case("mean_0d", "x.mean(), x.mean(0)", x=g())
case("mean_dtype", "x.mean(dtype=torch.float64), x.mean(0, dtype=torch.float64)", x=g(3, 4), dtypes=ALL)
case("nansum", "torch.nansum(x, 1)", x=g(3, 4))
case("amax", "x.amax(1), x.amin(), x.amax([0, 1], keepdim=True)", x=ties(3, 4), dtypes=ALL)
case("max_dim", "v, i = x.max(1)\nreturn v, i", x=ties(3, 4), dtypes=ALL)
case("max_dim_keepdim", "v, i = x.max(-1, keepdim=True)\nreturn v", x=g(3, 4))
case("max_dim_0d", "v, i = x.max(0)\nreturn v", x=g())
case("min_dim", "v, i = x.min(0)\nreturn v, i", x=g(3, 4))
case("max_indices_only", "v, i = x.max(0)\nreturn y[i]", x=g(3, 4), y=g(4))
case("max_min", "x.max(), x.min()", x=ties(3, 4), dtypes=ALL)
case("max_other", "torch.max(x, y), torch.min(x, y)", x=ties(3, 4), y=ties(4), dtypes=ALL)
case("median", "v, i = x.median(1)\nreturn v, x.median()", x=ties(3, 5))
case("mode", "v, i = x.mode(1)\nreturn v, i", x=ties(3, 5))
case("sort", "v, i = x.sort(-1, descending=True)\nreturn v, i", x=g(3, 4))
case("topk", "v, i = x.topk(2, dim=0)\nreturn v, i", x=g(3, 4))
case("prod", "x.prod(), x.prod(1), x.prod(0, keepdim=True)", x=g(3, 4))
case("prod_zeros", "x.prod(1), x.prod()", x=ties(3, 4))
case("prod_one_zero", "x.prod(), x.prod(0)", x=lambda d: torch.tensor([2.0, 0.0, 3.0], dtype=d).requires_grad_())
case("prod_0d", "x.prod()", x=g())
case("cumsum", "x.cumsum(1), x.cumsum(-2)", x=g(3, 4), dtypes=ALL)
case("cumsum_dtype", "x.cumsum(0, dtype=torch.float64)", x=g(3, 4))
case("cumsum_0d", "x.cumsum(0)", x=g())
case("cumprod", "x.cumprod(1)", x=ties(3, 4))
case("logsumexp", "x.logsumexp(1), x.logsumexp([0, 1]), x.logsumexp(-1, keepdim=True)", x=g(3, 4), dtypes=ALL)
for function in ("var", "std"):
    case(function, f"x.{function}(), x.{function}(1), x.{function}([0, -1], keepdim=True)", x=g(3, 4), dtypes=ALL)
    case(function + "_biased", f"x.{function}(unbiased=False), x.{function}(0, unbiased=False)", x=g(3, 4))
    case(
        function + "_correction",
        f"x.{function}(dim=[1], correction=2), torch.{function}(x, dim=None, correction=0, keepdim=True)",
        x=g(3, 4),
    )
    case(function + "_mean", f"v, m = torch.{function}_mean(x, 1)\nreturn v, m", x=g(3, 4))
    case(function + "_mean_all", f"v, m = torch.{function}_mean(x, unbiased=False)\nreturn m, v", x=g(3, 4))
    case(function + "_mean_one", f"v, m = torch.{function}_mean(x, [0], unbiased=False)\nreturn m", x=g(3, 4))
case("norm", "x.norm(), x.norm(1), x.norm(3)", x=g(3, 4))
case("norm_dim", "x.norm(2, dim=1), x.norm(1.5, [0], keepdim=True)", x=ties(3, 4))
case("norm_function", "torch.norm(x, dim=1)", x=g(3, 4))
case("norm_types", "x.norm(2, dtype=torch.float64), x.norm(2, [1], True, dtype=torch.float64)", x=g(3, 4), dtypes=ALL)
case(
    "reductions_complex",
    "x.sum(0), x.mean(), x.prod(), x.cumprod(0), x.cumsum(1), x.norm(2, 1), x.var(), x.std(1)",
    x=cplx(3, 4),
)
case("normalize", "F.normalize(x, dim=1)", x=g(3, 4))
case("vector_norm", "torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 2, [1], True)", x=ties(3, 4), dtypes=ALL)
case("linalg_norm", "torch.linalg.norm(x), torch.linalg.norm(x, dim=[1], keepdim=True)", x=ties(3, 4), dtypes=ALL)
case(
    "linalg_norm_order",
    "torch.linalg.norm(x, 2.0, dim=[-1]), torch.linalg.norm(x, 1, [0], True), torch.linalg.norm(x, 3.5, dim=[1])",
    x=ties(3, 4),
)
case("linalg_norm_of_a_vector", "torch.linalg.norm(x), torch.linalg.norm(x, 1, dim=[-1])", x=ties(5))
case(
    "linalg_norm_matrix",
    'torch.linalg.norm(x, "fro"), torch.linalg.norm(x, "fro", [1, 0], keepdim=True), torch.linalg.matrix_norm(x)',
    x=ties(3, 4),
)
case("vector_norm_inf", 'torch.linalg.vector_norm(x, float("inf"), [1])', x=ties(3, 4))
case("vector_norm_half", "torch.linalg.vector_norm(x, 0.5, [0])", x=ties(3, 4))

# ---- pooling and resampling ----
case("max_pool1d", "F.max_pool1d(x, 2), F.max_pool1d(x, 3, 2, 1)", x=g(2, 3, 8))
case("max_pool1d_indices", "v, i = F.max_pool1d(x, 2, return_indices=True)\nreturn v, i", x=g(2, 3, 8))
case("max_pool2d", "F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1)", x=g(2, 3, 8, 8), dtypes=ALL)
case("max_pool2d_channels_last", "F.max_pool2d(x, 3, stride=2, padding=1)", x=last(2, 3, 8, 8))
case("max_pool2d_ceil", "F.max_pool2d(x, 3, 2, 0, 2, ceil_mode=True)", x=g(2, 3, 9, 9))
case("max_pool2d_indices", "v, i = F.max_pool2d(x, 2, return_indices=True)\nreturn v, i", x=g(2, 3, 8, 8))
case("max_pool2d_unbatched", "F.max_pool2d(x, 2)", x=g(3, 8, 8))
case("max_pool3d", "F.max_pool3d(x, 2)", x=g(1, 2, 4, 4, 4))
case("avg_pool1d", "F.avg_pool1d(x, 2), F.avg_pool1d(x, 3, 2, 1)", x=g(2, 3, 8))
case("avg_pool2d", "F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", x=g(2, 3, 8, 8), dtypes=ALL)
case("avg_pool2d_divisor", "F.avg_pool2d(x, 2, divisor_override=3)", x=last(2, 3, 8, 8))
case("avg_pool3d", "F.avg_pool3d(x, 2)", x=g(1, 2, 4, 4, 4))
case("adaptive_avg_pool1d", "F.adaptive_avg_pool1d(x, 3), F.adaptive_avg_pool1d(x, 1)", x=g(2, 3, 8))
case("adaptive_avg_pool2d", "F.adaptive_avg_pool2d(x, (3, 2))", x=g(2, 3, 8, 8), dtypes=ALL)
case("adaptive_avg_pool2d_one", "F.adaptive_avg_pool2d(x, 1)", x=g(2, 3, 8, 8), dtypes=ALL)
case("adaptive_avg_pool2d_one_channels_last", "F.adaptive_avg_pool2d(x, [1, 1])", x=last(2, 3, 8, 8))
case("adaptive_avg_pool2d_keeps", "F.adaptive_avg_pool2d(x, [x.size(2), 2])", x=g(2, 3, 8, 8))
case("adaptive_avg_pool3d", "F.adaptive_avg_pool3d(x, 2), F.adaptive_avg_pool3d(x, 1)", x=g(1, 2, 4, 4, 4))
case("adaptive_max_pool1d", "F.adaptive_max_pool1d(x, 3)", x=g(2, 3, 8))
case("adaptive_max_pool2d", "F.adaptive_max_pool2d(x, (3, 2))", x=g(2, 3, 8, 8))
case("adaptive_max_pool2d_channels_last", "F.adaptive_max_pool2d(x, (3, 2))", x=last(2, 3, 8, 8))
case("avg_pool2d_strided", "F.avg_pool2d(x, 2)", x=strided(2, 3, 8, 8))
case("max_pool2d_of_chain", "F.max_pool2d(torch.relu(x * 2), 2)", x=g(2, 3, 8, 8))
case("adaptive_avg_pool2d_channels_last", "F.adaptive_avg_pool2d(x, (3, 2))", x=last(2, 3, 8, 8), dtypes=ALL)
case("adaptive_max_pool3d", "F.adaptive_max_pool3d(x, 2)", x=g(1, 2, 4, 4, 4))
for mode, size in (
    ("nearest", (2, 3, 5)),
    ("linear", (2, 3, 5)),
    ("nearest", (2, 3, 5, 4)),
    ("bilinear", (2, 3, 5, 4)),
    ("bicubic", (2, 3, 5, 4)),
    ("nearest", (1, 2, 3, 3, 3)),
    ("trilinear", (1, 2, 3, 3, 3)),
    ("nearest-exact", (2, 3, 5, 4)),
):
    case(f"interpolate_{mode}_{len(size) - 2}d", f'F.interpolate(x, scale_factor=2.0, mode="{mode}")', x=g(*size))
case("interpolate_size", 'F.interpolate(x, size=[7, 9], mode="bilinear", align_corners=True)', x=last(2, 3, 5, 4))
case(
    "interpolate_recomputed",
    'F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True)',
    x=g(2, 3, 5, 4),
)
case("interpolate_antialias", 'F.interpolate(x, size=[3, 3], mode="bilinear", antialias=True)', x=g(2, 3, 6, 6))
case("upsample_nearest2d", "torch._C._nn.upsample_nearest2d(x, [7, 9])", x=g(2, 3, 5, 4))
case("grid_sample", "F.grid_sample(x, y, align_corners=False)", x=g(2, 3, 4, 4), y=g(2, 5, 5, 2))
case(
    "grid_sample_one",
    'F.grid_sample(x, y, mode="nearest", padding_mode="border", align_corners=True)',
    x=g(2, 3, 4, 4),
    y=const(2, 5, 5, 2),
)
case("grid_sample_grid", "F.grid_sample(x, y, align_corners=True)", x=const(2, 3, 4, 4), y=g(2, 5, 5, 2))
case("grid_sample_3d", "F.grid_sample(x, y, align_corners=False)", x=g(1, 2, 3, 3, 3), y=g(1, 2, 2, 2, 3))

# ---- attention ----
QKV: dict[str, Any] = {"q": g(2, 3, 5, 8), "k": g(2, 3, 7, 8), "v": g(2, 3, 7, 8)}
case("sdpa", "F.scaled_dot_product_attention(q, k, v)", dtypes=(F32, F64, BF16, F16), **QKV)
case("sdpa_causal", "F.scaled_dot_product_attention(q, k, v, is_causal=True)", **QKV)
case("sdpa_scale", "F.scaled_dot_product_attention(q, k, v, scale=0.3)", **QKV)
case(
    "sdpa_transposed",
    "F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))",
    q=g(2, 5, 3, 8),
    k=g(2, 7, 3, 8),
    v=g(2, 7, 3, 8),
)
case(
    "sdpa_transposed_dropout",
    "F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), dropout_p=0.3)",
    q=g(2, 5, 3, 8),
    k=g(2, 7, 3, 8),
    v=g(2, 7, 3, 8),
)
case("sdpa_self", "F.scaled_dot_product_attention(x, x, x)", x=g(2, 3, 5, 8))
case(
    "sdpa_query_only",
    "F.scaled_dot_product_attention(q, k, v)",
    q=g(2, 3, 5, 8),
    k=const(2, 3, 7, 8),
    v=const(2, 3, 7, 8),
)
case("sdpa_mask", "F.scaled_dot_product_attention(q, k, v, attn_mask=m)", m=const(5, 7), **QKV)
case("sdpa_mask_bool", "F.scaled_dot_product_attention(q, k, v, attn_mask=m)", m=bools(2, 1, 5, 7), dtypes=ALL, **QKV)
case("sdpa_mask_gradient", "F.scaled_dot_product_attention(q, k, v, attn_mask=m)", m=g(3, 5, 7), **QKV)
case("sdpa_dropout", "F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)", dtypes=(F32, F64, BF16, F16), **QKV)
case("sdpa_dropout_causal", "F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True)", **QKV)
case("sdpa_dropout_mask", "F.scaled_dot_product_attention(q, k, v, m, 0.3, scale=-0.5)", m=bools(5, 7), **QKV)
case("sdpa_dropout_everything", "F.scaled_dot_product_attention(q, k, v, dropout_p=1.0)", **QKV)
case(
    "sdpa_dropout_twice",
    "F.scaled_dot_product_attention(q, k, v, dropout_p=0.3), F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)",
    **QKV,
)
case(
    "sdpa_grouped",
    "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
    q=g(2, 4, 5, 8),
    k=g(2, 2, 7, 8),
    v=g(2, 2, 7, 8),
)
case(
    "sdpa_grouped_dropout",
    "F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, enable_gqa=True)",
    q=g(2, 4, 5, 8),
    k=g(2, 2, 7, 8),
    v=g(2, 2, 7, 8),
)
case("sdpa_3d", "F.scaled_dot_product_attention(q, k, v)", q=g(3, 5, 8), k=g(3, 7, 8), v=g(3, 7, 6))
case("sdpa_2d", "F.scaled_dot_product_attention(q, k, v)", q=g(5, 8), k=g(7, 8), v=g(7, 8))
case("sdpa_broadcast", "F.scaled_dot_product_attention(q, k, v)", q=g(2, 3, 5, 8), k=g(1, 3, 7, 8), v=g(2, 1, 7, 8))
# Eager multiplies a matrix without a batch dimension by all rows at once, which rounds differently.
case(
    "sdpa_no_batch",
    "F.scaled_dot_product_attention(q, k, v)",
    q=g(2, 3, 5, 8),
    k=g(1, 3, 7, 8),
    v=g(7, 8),
    tolerance=1e-5,
)

# ---- Fourier transforms and complex numbers ----
for _name in ("fft", "ifft", "irfft"):
    case(f"{_name}_complex", f"torch.fft.{_name}(x)", x=cplx(4, 5))
    case(f"{_name}_longer", f"torch.fft.{_name}(x, n=9, dim=0, norm='forward')", x=cplx(4, 5))
    case(f"{_name}_shorter", f"torch.fft.{_name}(x, n=3, norm='ortho')", x=cplx(4, 5))
    case(f"{_name}2_complex", f"torch.fft.{_name}2(x, s=[6, 4])", x=cplx(2, 4, 5))
    case(f"{_name}n_complex", f"torch.fft.{_name}n(x, dim=[2, 0], norm='backward')", x=cplx(2, 4, 5))
for _name in ("fft", "ifft", "rfft", "irfft"):
    case(f"{_name}_real", f"torch.fft.{_name}(x)", x=g(4, 5))
    case(f"{_name}_real_longer", f"torch.fft.{_name}(x, n=8, dim=0)", x=g(4, 5))
    case(f"{_name}2_real", f"torch.fft.{_name}2(x, s=[3, 8], norm='ortho')", x=g(2, 4, 5))
    case(f"{_name}n_real", f"torch.fft.{_name}n(x)", x=g(2, 4, 5))
    case(f"{_name}n_real_resized", f"torch.fft.{_name}n(x, s=[-1, 6], dim=[0, 2])", x=g(2, 4, 5))
case("rfft_of_odd_length", "torch.fft.irfft(torch.fft.rfft(x) * y, n=5)", x=g(4, 5), y=cplx(4, 3))
case("view_as_real", "torch.view_as_real(x * y)", x=cplx(3, 4), y=cplx(4))
case("view_as_complex", "torch.view_as_complex(x * y)", x=g(3, 4, 2), y=g(2))
case("complex", "torch.complex(x, y) * z", x=g(3, 4), y=g(3, 4), z=cplx(4))
case("polar", "torch.polar(x.abs(), y)", x=g(3, 4), y=g(3, 4))
case("real_and_imag", "torch.real(x * y), torch.imag(x)", x=cplx(3, 4), y=cplx(4))
case("real_of_real", "torch.real(x) * 2", x=g(3, 4))
