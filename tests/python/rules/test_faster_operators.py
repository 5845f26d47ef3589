"""Operators that run in place of ATen's have its bits, sizes and strides (runtime/faster_operator.h)."""

import contextlib
import functools
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute  # noqa: F401  It registers the operators.
from support.helpers import assert_same, lowered_copy

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 33, 63, 64, 65]


def operator(arguments: str, call: str) -> Callable[..., Tensor]:
    """Returns a function that calls an operator of the project."""
    text = f"graph({arguments}):\n  %result : Tensor = aten_recompute::{call}\n  return (%result)\n"
    function: Callable[..., Tensor] = torch._C._create_function_from_graph("operator", torch._C.parse_ir(text))
    return function


MUL = operator("%a : Tensor, %b : Tensor", "mul(%a, %b)")
MUL_OUT = operator("%a : Tensor, %b : Tensor, %to : Tensor", "mul_out(%a, %b, %to)")
BMM = operator("%a : Tensor, %b : Tensor", "bmm(%a, %b)")
SUM_TO = operator("%a : Tensor, %size : int[], %dtype : int", "reduce_grad(%a, %size, %dtype)")
NUMBERS = {
    name: (
        operator(f"%a : Tensor, %b : Scalar{alpha[0]}", f"{name}_number(%a, %b{alpha[1]})"),
        operator(f"%a : Tensor, %b : Scalar{alpha[0]}", f"{name}_number_(%a, %b{alpha[1]})"),
    )
    for name, alpha in {
        "add": (", %alpha : Scalar", ", %alpha"),
        "sub": (", %alpha : Scalar", ", %alpha"),
        "mul": ("", ""),
        "div": ("", ""),
    }.items()
}
TENSORDOT = operator(
    "%a : Tensor, %b : Tensor, %dims_a : int[], %dims_b : int[]", "tensordot(%a, %b, %dims_a, %dims_b)"
)
EINSUM = torch._C._create_function_from_graph(
    "einsum",
    torch._C.parse_ir("""
graph(%a : Tensor, %b : Tensor, %equation : str):
  %operands : Tensor[] = prim::ListConstruct(%a, %b)
  %path : NoneType = prim::Constant()
  %result : Tensor = aten_recompute::einsum(%equation, %operands, %path)
  return (%result)
"""),
)
EINSUM_BACKWARD = torch._C._create_function_from_graph(
    "einsum_backward",
    torch._C.parse_ir("""
graph(%gradient : Tensor, %a : Tensor, %b : Tensor, %equation : str):
  %yes : bool = prim::Constant[value=1]()
  %of_a : Tensor, %of_b : Tensor = aten_recompute::einsum_pair_backward(%gradient, %equation, %a, %b, %yes, %yes)
  %result : (Tensor, Tensor) = prim::TupleConstruct(%of_a, %of_b)
  return (%result)
"""),
)
DTYPE_NUMBERS = {torch.float32: 6, torch.float64: 7}


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[False, True])
def in_a_region(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without and with autograd's views left out, as in a region, where contractions make no views."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with torch._C._ExcludeDispatchKeyGuard(keys) if request.param else contextlib.nullcontext():
        yield


def tensor_of(size: list[int], dtype: torch.dtype, choose: random.Random) -> Tensor:
    """Returns a tensor whose dimensions lie in memory in any order, some with gaps."""
    order = list(range(len(size)))
    choose.shuffle(order)
    with_gaps = [extent + choose.choice([0, 0, 1]) for extent in size]
    tensor = torch.randn([with_gaps[dim] for dim in order], dtype=dtype)
    return tensor.permute([order.index(dim) for dim in range(len(size))])[tuple(slice(extent) for extent in size)]


def dtype_of(choose: random.Random) -> torch.dtype:
    return choose.choice([torch.float32, torch.float64])


def assert_like(actual: Tensor, expected: Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert actual.size() == expected.size()
    assert actual.stride() == expected.stride()
    assert torch.equal(actual, expected)
    assert torch.equal(actual.signbit(), expected.signbit())


@pytest.mark.usefixtures("threads")
def test_products_of_tensors_that_are_broadcast() -> None:
    choose = random.Random(0)
    for _ in range(1500):
        dtype = dtype_of(choose)
        size = [choose.choice(SIZES[:11]) for _ in range(choose.randint(0, 5))]
        if size and choose.random() < 0.05:
            size[0] = 3000
        left = tensor_of([extent if choose.random() < 0.7 else 1 for extent in size], dtype, choose)
        right = tensor_of([extent if choose.random() < 0.7 else 1 for extent in size], dtype, choose)
        if size and choose.random() < 0.2:
            right = right[(0,) * choose.randint(1, len(size))]
        expected = torch.mul(left, right)
        assert_like(MUL(left, right), expected)
        to = tensor_of(list(expected.size()), dtype, choose)
        result = MUL_OUT(left, right, to)
        assert result.data_ptr() == to.data_ptr()
        assert torch.equal(to, expected)


@pytest.mark.usefixtures("threads")
def test_sums_over_dimensions() -> None:
    choose = random.Random(1)
    for _ in range(2500):
        dtype = dtype_of(choose)
        size = [choose.choice(SIZES if choose.random() < 0.6 else [2, 3, 5, 8]) for _ in range(choose.randint(1, 5))]
        if math.prod(size) > 200_000:
            continue
        dense = choose.random() < 0.4
        tensor = torch.randn(size, dtype=dtype) if dense else tensor_of(size, dtype, choose)
        to = [1 if choose.random() < 0.45 else extent for extent in size]
        if choose.random() < 0.2:
            to = to[choose.randint(0, len(to)) :]
        assert_like(SUM_TO(tensor, to, DTYPE_NUMBERS[dtype]), tensor.sum_to_size(to))


@pytest.mark.usefixtures("threads")
def test_sums_of_tensors_that_are_expanded() -> None:
    choose = random.Random(5)
    for _ in range(2500):
        dtype = dtype_of(choose)
        size = [choose.choice([1, 1, *SIZES[1:12]]) for _ in range(choose.randint(2, 5))]
        if math.prod(size) > 200_000:
            continue
        stored = [1 if choose.random() < 0.3 else extent for extent in size]
        tensor = tensor_of(stored, dtype, choose).expand(size)
        to = [1 if choose.random() < 0.45 else extent for extent in size]
        assert_like(SUM_TO(tensor, to, DTYPE_NUMBERS[dtype]), tensor.sum_to_size(to))


@pytest.mark.usefixtures("threads")
def test_products_of_small_matrices() -> None:
    choose = random.Random(2)
    for _ in range(1500):
        dtype = dtype_of(choose)
        batch, n, k, m = choose.choice([0, 1, 5, 368]), *(choose.choice(SIZES[:12]) for _ in range(3))
        left = tensor_of([batch, n, k], dtype, choose)
        right = tensor_of([batch, k, m], dtype, choose)
        assert_like(BMM(left, right), torch.bmm(left, right))
    with pytest.raises(RuntimeError, match="Expected size for first two dimensions"):
        BMM(torch.randn(2, 3, 4), torch.randn(2, 3, 4))


@pytest.mark.usefixtures("threads", "in_a_region")
def test_tensordot() -> None:
    choose = random.Random(6)
    for _ in range(600):
        dtype = dtype_of(choose)
        num_summed = choose.randint(0, 2)
        summed = [choose.choice(SIZES[:9]) for _ in range(num_summed)]
        rests = [[choose.choice(SIZES[:9]) for _ in range(choose.randint(0, 2))] for _ in range(2)]
        operands, dims = [], []
        for rest in rests:
            order = choose.sample(range(len(rest) + num_summed), len(rest) + num_summed)
            sizes = [(rest + summed)[each] for each in order]
            operands.append(tensor_of(sizes, dtype, choose))
            dims.append([order.index(len(rest) + i) for i in range(num_summed)])
        assert_like(TENSORDOT(*operands, *dims), torch.tensordot(operands[0], operands[1], dims=dims))


@pytest.mark.parametrize("dims", [([0], [0]), ([1, 1], [0, 0]), ([3], [0]), ([0, 1], [1])], ids=lambda dims: str(dims))
def test_tensordot_raises_what_aten_raises(dims: tuple[list[int], list[int]]) -> None:
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        torch.tensordot(left, right, dims=dims)
    with pytest.raises(RuntimeError) as actual:
        TENSORDOT(left, right, *dims)
    assert str(expected.value).splitlines()[0] in str(actual.value)


@pytest.mark.usefixtures("threads", "in_a_region")
def test_einsum_of_two_tensors() -> None:
    choose = random.Random(4)
    for _ in range(1500):
        dtype = dtype_of(choose)
        letters = choose.sample("abcdXY", choose.randint(1, 5))
        extents = {letter: choose.choice(SIZES[:12]) for letter in letters}
        if choose.random() < 0.3:
            extents[letters[0]] = choose.choice([100, 368])
        names = [choose.sample(letters, choose.randint(1, len(letters))) for _ in range(2)]
        both = sorted({letter for each in names for letter in each})
        if math.prod(extents[letter] for letter in both) > 200_000:
            continue
        output = choose.sample(both, choose.randint(0, len(both)))
        equation = ",".join("".join(each) for each in names) + ("->" + "".join(output) if choose.random() < 0.9 else "")
        left, right = (
            tensor_of([extents[letter] if choose.random() < 0.93 else 1 for letter in each], dtype, choose)
            .detach()
            .requires_grad_()
            for each in names
        )
        expected = torch.einsum(equation, left, right)
        gradient = tensor_of(list(expected.shape), dtype, choose)
        with torch.no_grad():
            assert_like(EINSUM(left, right, equation), expected.detach())
            gradients = EINSUM_BACKWARD(gradient, left, right, equation)
        for actual, eager in zip(gradients, torch.autograd.grad(expected, [left, right], gradient), strict=True):
            assert torch.equal(actual, eager)


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("ab,bc->ac", [(2, 3), (4, 5)]),
        ("ab,bc->ad", [(2, 3), (3, 5)]),
        ("ab,bc->aa", [(2, 3), (3, 5)]),
        ("ab,bc", [(2, 3, 1), (3, 5)]),
        ("a1,bc", [(2, 3), (3, 5)]),
        ("ab;bc", [(2, 3), (3, 5)]),
    ],
)
def test_einsum_raises_what_aten_raises(equation: str, sizes: list[tuple[int, ...]]) -> None:
    left, right = (torch.randn(size) for size in sizes)
    with pytest.raises(RuntimeError) as expected:
        torch.einsum(equation, left, right)
    with pytest.raises(RuntimeError) as actual:
        EINSUM(left, right, equation)
    assert str(expected.value).splitlines()[0] in str(actual.value)


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [("aa,ab->b", [(3, 3), (3, 4)]), ("...a,ab->...b", [(2, 5, 3), (3, 4)]), ("a b, b c -> a c", [(2, 3), (3, 5)])],
)
def test_einsum_with_other_equations(equation: str, sizes: list[tuple[int, ...]]) -> None:
    left, right = (torch.randn(size) for size in sizes)
    assert_like(EINSUM(left, right, equation), torch.einsum(equation, left, right))


def test_zeros_without_memory_are_left_to_aten() -> None:
    zeros, ones = torch._efficientzerotensor((2, 3, 4)), torch.ones(2, 4, 3)
    assert_like(MUL(zeros, ones.mT), torch.mul(zeros, ones.mT))
    assert_like(BMM(zeros, ones), torch.bmm(zeros, ones))
    assert_like(SUM_TO(zeros, [2, 3, 1], DTYPE_NUMBERS[torch.float32]), zeros.sum_to_size(2, 3, 1))
    assert_like(EINSUM(zeros, ones, "abc,acd->abd"), torch.einsum("abc,acd->abd", zeros, ones))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.usefixtures("threads")
def test_a_tensor_and_a_number(name: str) -> None:
    own, in_place = NUMBERS[name]
    eager, eager_in_place = (getattr(torch.ops.aten, each).Scalar for each in (name, f"{name}_"))
    choose = random.Random(3)
    tensors = [
        *(tensor_of([3, 5, 4], dtype, choose) for dtype in [*DTYPE_NUMBERS] * 6),
        torch.randn(50_000),
        torch.randn([]),
        torch.randn(0, 3),
        torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(7).bfloat16(),
        torch.arange(1, 8),
        torch.randn(7, dtype=torch.complex64),
        torch._neg_view(torch.randn(5)),
        torch._efficientzerotensor((5,)),
        torch.randn(6, requires_grad=True),
        torch.randn(1, 3).expand(4, 3),
        *(tensor_of(choose.choices([1, 2, 5], k=4), torch.float32, choose) for _ in range(60)),
        torch.randn(8, 24, 1, 1).as_strided((8, 24, 1, 1), (24, 1, 24, 24)),
    ]
    alphas: list[list[float]] = [[1], [2]] if name in ("add", "sub") else [[]]
    for tensor in tensors:
        for number in (0.3, 2, -0.0, math.inf, 1e300, 3 + 1j):
            for alpha in alphas:
                try:
                    expected = eager(tensor, number, *alpha)
                except NotImplementedError as error:  # bfloat16 with a complex number, from PyTorch 2.15 on
                    with pytest.raises(RuntimeError, match=re.escape(str(error).splitlines()[0])):
                        own(tensor, number, *alpha)
                    continue
                actual = own(tensor, number, *alpha)
                assert actual.dtype == expected.dtype
                assert actual.stride() == expected.stride()
                torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
                if expected.dtype == tensor.dtype and not tensor._is_view():
                    changed = tensor.clone()
                    in_place(changed, number, *alpha)
                    # With other types than float and double, ATen rounds the number first here.
                    expected = eager_in_place(tensor.clone(), number, *alpha)
                    torch.testing.assert_close(changed, expected, rtol=0, atol=0, equal_nan=True)


def test_a_complex_factor_of_a_number_is_refused() -> None:
    with pytest.raises(RuntimeError, match="alpha must not be a complex number"):
        NUMBERS["add"][0](torch.randn(3), 2.0, 1 + 0j)


class Scales(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x * 1.5, x.transpose(1, 2)).sum()


def test_a_profile_has_the_names_of_aten() -> None:
    lowered = lowered_copy(Scales(), "none")
    x = torch.randn(3, 2, 2, requires_grad=True)
    lowered(x).backward()
    with torch.profiler.profile() as profile:
        lowered(x).backward()
    names = {event.name for event in profile.events()}
    assert {"aten::bmm", "aten::mul", "aten::transpose"} <= names


VIEWS: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "view": ("int[]", [([4, 15],), ([-1],), ([2, 2, 15],), ([3, 20],), ([-1, -1],), ([7, 9],)]),
    "reshape": ("int[]", [([4, 15],), ([-1, 2],), ([60],), ([5, 12],), ([7, 9],), ([0, -1],)]),
    "permute": ("int[]", [([2, 0, 1],), ([-1, 1, 0],), ([0, 0, 1],), ([0, 1],), ([0, 1, 3],)]),
    "unsqueeze": ("int", [(0,), (2,), (3,), (-1,), (-4,), (4,)]),
    "transpose": ("int, int", [(0, 2), (-1, 1), (1, 1), (0, 3)]),
    "narrow": ("int, int, int", [(1, 0, 2), (2, -2, 2), (0, 4, 0), (1, 2, 2), (1, 0, -1), (3, 0, 1)]),
    "select": ("int, int", [(0, 3), (-1, -5), (1, 3), (2, -6), (3, 0)]),
    "slice": (
        "int, int?, int?, int",
        [
            (0, None, None, 1),
            (1, -2, 9, 1),
            (2, 3, 1, 1),
            (2, None, -1, 2),
            (2, 1, None, 7),
            (0, 0, 1, 0),
            (3, 0, 1, 1),
        ],
    ),
    "expand": ("int[]", [([2, 4, 3, 5],), ([4, -1, 5],), ([3, 5],), ([4, 6, 5],)]),
}


def _without_implicit(expand: Callable[..., Tensor], tensor: Tensor, size: list[int]) -> Tensor:
    return expand(tensor, size, False)


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_of_aten(name: str) -> None:
    types, cases = VIEWS[name]
    named = [f"%v{i} : {each.strip()}" for i, each in enumerate(types.split(","))]
    values = ", ".join(each.split(" ")[0] for each in named)
    if name == "expand":  # its last argument can be given by name only
        own = operator("%a : Tensor, %v0 : int[], %implicit : bool", "expand(%a, %v0, %implicit)")
        own = functools.partial(_without_implicit, own)
    else:
        own = operator(", ".join(["%a : Tensor", *named]), f"{name}(%a, {values})")
    overloads = getattr(torch.ops.aten, name)
    eager = getattr(overloads, overloads.overloads()[0])
    whole = torch.arange(600.0).view(10, 60)
    tensors = [
        torch.randn(4, 3, 5),
        torch.randn(5, 3, 4).permute(2, 1, 0),
        whole[2, :60].view(4, 3, 5),
        torch.randn(4, 1, 5).expand(4, 3, 5),
        torch.randn(4, 3, 5, dtype=torch.complex64).conj(),
        torch.randn(4, 3, 5, device="meta"),
        torch.randn(4, 3, 5, requires_grad=True),
    ]

    def outcome(function: Callable[..., Tensor], tensor: Tensor, arguments: tuple[object, ...]) -> list[object] | str:
        try:
            view = function(tensor, *arguments)
        except (RuntimeError, IndexError) as error:
            return str(error)
        is_copy = view.is_meta or view.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
        place = None if is_copy else view.storage_offset()
        return [view.size(), view.stride(), place, view.is_conj(), view.requires_grad, view.detach().resolve_conj()]

    for tensor in tensors:
        for arguments in cases:
            with torch.set_grad_enabled(tensor.requires_grad):
                expected = outcome(eager, tensor, arguments)
                # In a region, LibTorch does not follow views.
                with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)):
                    actual = outcome(own, tensor, arguments)
            if isinstance(expected, str):
                assert expected.splitlines()[0] in actual
                continue
            assert not isinstance(actual, str), actual
            assert actual[:-1] == expected[:-1]
            assert tensor.is_meta or torch.equal(actual[-1], expected[-1])  # type: ignore[arg-type]


class Product(nn.Module):
    """Products that autocast casts, and operators that it does not cast by themselves."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.kind == "bmm":
            return torch.bmm(x, y)
        if self.kind == "einsum":
            return torch.einsum("abc,acd->abd", x, y)
        if self.kind == "tensordot":
            return torch.tensordot(x, y, dims=[[2], [1]])
        return torch.tanh(torch.bmm(torch.exp(x), y)).transpose(1, 2)[:, 1:].unsqueeze(1) * x[:1, 1:] * 0.5 + 1.0


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", ["bmm", "einsum", "tensordot", "several"])
def test_autocast_casts_the_operands_of_a_call_without_gradients(kind: str, mode: Callable[[], Any]) -> None:
    eager = Product(kind)
    lowered = lowered_copy(eager, "none")
    x, y = torch.randn(2, 3, 3), torch.randn(2, 3, 3)
    lowered(x, y)  # the faster forms are compared with ATen's at their first use
    with mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same([lowered(x, y)], [eager(x, y)])
