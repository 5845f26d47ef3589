"""Cases of test_aliasing.py: one tensor in several places, memory layouts, sizes and dtypes."""

from typing import Any

import torch
from torch import Tensor, nn

from support.alias_cases import Chain, Scenario, WritesItsInput, case, leaf, trained


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x)) * y
        return h * x + torch.sin(y) / 3.0


class WritesOneOfTwo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.linear(y)
        x.mul_(0.5)
        return h + y * x


# ---- one tensor in several places ----


@case("same_leaf_twice", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    return trained(module(x, x), x)


@case("same_memory_twice", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x = leaf(6, 6)
    return trained(module(x, x.t()), x)


@case("detached_twin", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    return trained(module(x.detach(), x), x)


@case("same_tensor_twice_written_inside", WritesOneOfTwo)
def _(module: Any) -> list[Tensor | None]:
    first = leaf()
    x = first * 1.0
    return trained(module(x, x), first)


@case("view_and_base_written_inside", WritesOneOfTwo)
def _(module: Any) -> list[Tensor | None]:
    first = leaf(5, 6)
    x = first * 1.0
    return trained(module(x[1:], x[:-1].detach()), first, x)


@case("output_given_again", Chain)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    once = module(x)
    return trained(module(once) + once, x)


@case("parameter_given_as_input", Pairs)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf(6, 6), module.linear.weight)) + trained(module(leaf(6, 6), leaf(6, 6)))


class ReadsThree(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.addcmul(x, y, x / 3.0, value=0.7) + torch.sin(x) / y


@case("same_tensor_twice_and_then_not", ReadsThree)
def _(module: Any) -> list[Tensor | None]:
    x, y = leaf(20, 6), leaf(20, 6)
    return trained(module(x, x), x) + trained(module(x, y), x, y) + trained(module(y, y), y)


# ---- layouts ----


@case("expanded_input", Pairs)
def _(module: Any) -> list[Tensor | None]:
    row, column = leaf(1, 6), leaf(4, 1)
    return trained(module(row.expand(4, 6), column.expand(-1, 6)), row, column)


@case("expanded_input_written_inside", WritesItsInput)
def _(module: Any) -> list[Tensor | None]:
    return trained(module((leaf(1, 6) * 1.0).expand(4, 6)))


@case("broadcast_inputs", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x, y = leaf(3, 1, 6), leaf(1, 6)
    return trained(module(x, y), x, y)


@case("not_contiguous", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x, y = leaf(6, 4), leaf(4, 12)
    output = module(x.t(), y[:, ::2])
    return trained(output, x, y, torch.tensor(output.stride()))


@case("flipped_strides_after_straight_ones", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x, y = leaf(6, 6), leaf(6, 6)
    return trained(module(x, y), x, y) + trained(module(x.t(), y.t()), x, y)


@case("zero_size", Pairs)
def _(module: Any) -> list[Tensor | None]:
    x, y = leaf(0, 6), leaf(0, 6)
    return trained(module(x, y), x, y) + trained(module(leaf(2, 6), leaf(2, 6)))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.norm(self.first(x)))) + x.mean(1, keepdim=True)


@case("channels_last", Convolutions)
def _(module: Any) -> list[Tensor | None]:
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    output = module(x)
    strides = torch.tensor(output.stride())
    return trained(output, x) + [strides, torch.tensor(x.grad.stride())]


@case("channels_last_after_contiguous", Convolutions)
def _(module: Any) -> list[Tensor | None]:
    values, results = torch.randn(2, 3, 5, 5), []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = values.clone(memory_format=layout).requires_grad_()
        output = module(x)
        results += trained(output, x) + [torch.tensor(output.stride()), torch.tensor(x.grad.stride())]
    return results


@case("channels_last_weights", Convolutions)
def _(module: Any) -> list[Tensor | None]:
    module.to(memory_format=torch.channels_last)
    output = module(torch.randn(2, 3, 5, 5))
    results = trained(output) + [torch.tensor(p.grad.stride()) for p in module.parameters()]
    module.to(memory_format=torch.contiguous_format)
    return results


class Numbers(nn.Module):
    """Combines tensors with and without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.count.add_(1)
        return torch.tanh(x * self.scale) * y + x.sum() / self.count


@case("no_dimensions", Numbers)
def _(module: Any) -> list[Tensor | None]:
    x, y = torch.tensor(0.5, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    return trained(module(x, y), x, y)


@case("no_dimensions_among_others", Numbers)
def _(module: Any) -> list[Tensor | None]:
    x, y = leaf(3, 2), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    return trained(module(x, y), x, y)


class OfAnyType(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = x * y + torch.sin(x)
        h = h.clone()
        h[1:] *= 2
        return h @ y.t() - h.mean()


def typed(dtype: torch.dtype, other: torch.dtype) -> Scenario:
    def scenario(module: Any) -> list[Tensor | None]:
        x = torch.randn(4, 4, dtype=dtype).requires_grad_()
        y = torch.randn(4, 4, dtype=other).requires_grad_()
        output = module(x, y)
        output.abs().square().sum().backward()
        return [output, x.grad, y.grad]

    return scenario


for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64):
    case(f"all_{dtype}".replace("torch.", ""), OfAnyType)(typed(dtype, dtype))


@case("types_one_after_the_other", OfAnyType)
def _(module: Any) -> list[Tensor | None]:
    results = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex128, torch.float32):
        results += typed(dtype, dtype)(module)
    return results


class MixedTypes(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = torch.sin(x) * y
        return (h.to(x.dtype) * 0.3 + x).to(torch.float32) * y - h


for one, two in (
    (torch.bfloat16, torch.float32),
    (torch.float32, torch.float16),
    (torch.float32, torch.float64),
    (torch.float64, torch.float32),
):
    case(f"{one}_and_{two}".replace("torch.", ""), MixedTypes)(typed(one, two))


class ReadsIntegers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(7, 6))

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        picked = self.table[index] * index.unsqueeze(1)
        index.add_(1)
        return picked * x + self.table[index].cumsum(0) / index.sum()


@case("integers_written_inside", ReadsIntegers)
def _(module: Any) -> list[Tensor | None]:
    x, index = leaf(), torch.tensor([0, 3, 3, 5])
    return trained(module(x, index), x) + [index]


@case("integers_written_after_the_call", ReadsIntegers)
def _(module: Any) -> list[Tensor | None]:
    index = torch.tensor([0, 3, 3, 5])
    output = module(leaf(), index)
    index.zero_()
    return trained(output)


class NewTensors(nn.Module):
    """Tensors that the program makes of constants are new at each call."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        zeros = torch.zeros(6)
        pair = torch.stack([torch.ones(6), torch.zeros(6)])
        return x * pair[0] + zeros, zeros, pair


@case("new_tensors_written_by_the_caller", NewTensors)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    output, zeros, pair = module(x)
    results = trained(output, x) + [zeros.clone(), pair.clone()]
    zeros.add_(1.0)
    pair.mul_(3.0)
    return results + [zeros, pair]


class SparseEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6, sparse=True)
        self.weight = nn.Parameter(torch.rand(6))

    def forward(self, index: Tensor) -> Tensor:
        return self.table(index) * self.weight + self.table(index + 1).sigmoid()


@case("sparse_gradients", SparseEmbedding)
def _(module: Any) -> list[Tensor | None]:
    output = module(torch.tensor([0, 3, 3, 5]))
    output.square().sum().backward()
    gradient = module.table.weight.grad
    assert gradient.is_sparse
    results = [output, gradient.to_dense(), torch.tensor(gradient.is_coalesced())]
    module.table.weight.grad = None
    return results


class SparseProduct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, graph: Tensor, x: Tensor) -> Tensor:
        return torch.relu(torch.sparse.mm(graph, self.linear(x))) + x


@case("sparse_input", SparseProduct)
def _(module: Any) -> list[Tensor | None]:
    graph = torch.eye(4).roll(1, 0).to_sparse()
    x = leaf()
    return trained(module(graph, x), x)


@case("sparse_input_with_gradient", SparseProduct)
def _(module: Any) -> list[Tensor | None]:
    graph = torch.eye(4).roll(1, 0).to_sparse().requires_grad_()
    x = leaf()
    return trained(module(graph, x), x)[:3] + [graph.grad.to_dense()]


class Dequantizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, q: Tensor) -> Tensor:
        x = q.dequantize()
        return torch.tanh(self.linear(x)) * x


@case("quantized_input", Dequantizes)
def _(module: Any) -> list[Tensor | None]:
    q = torch.quantize_per_tensor(torch.randn(4, 6), 0.1, 10, torch.quint8)
    return trained(module(q))
