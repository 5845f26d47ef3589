"""Tensors that share memory, and tensors that are written to, behave in a lowered module as in eager.

A scenario makes its inputs, calls the module, does what a caller may do, and gives back every tensor that somebody could
look at. Eager and lowered give the same, bit for bit, or raise the same error.
"""

import re
from typing import Callable, Dict, List, Tuple

import pytest
import torch
from helpers import assert_same, lowered_copy
from torch import Tensor, nn

STRATEGIES = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "budget": {"strategy": "budget", "time_budget": 2.0, "cost_model": "flops"},
}

Scenario = Callable[[nn.Module], List[Tensor]]
CASES: Dict[str, Tuple[Callable[[], nn.Module], Scenario]] = {}


def case(name: str, make: Callable[[], nn.Module]) -> Callable[[Scenario], Scenario]:
    def enter(scenario: Scenario) -> Scenario:
        assert name not in CASES
        CASES[name] = (make, scenario)
        return scenario

    return enter


def outcome(module: nn.Module, scenario: Scenario) -> Tuple[str, List[Tensor]]:
    """The error without what names a tensor or a place, and tensors: the scenario's, gradients, state, writes to it."""
    torch.manual_seed(5)
    module.zero_grad(set_to_none=True)
    state = [*module.parameters(), *module.buffers()]
    before = [t._version for t in state]
    error, tensors = "", []
    try:
        tensors = scenario(module)
    except RuntimeError as raised:
        # TorchScript says where, and repeats the message behind that.
        error = re.split(r"[:\[.]", str(raised).split("RuntimeError: ")[-1])[0]
    tensors = [t.detach().clone() if t is not None else None for t in tensors]
    written = torch.tensor([t._version - version for t, version in zip(state, before)])
    return error, tensors + [p.grad for p in module.parameters()] + [t.detach().clone() for t in state] + [written]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, strategy: str) -> None:
    make, scenario = CASES[name]
    eager = make()
    lowered = lowered_copy(eager, STRATEGIES[strategy])
    for _ in range(2):  # the second call runs the compiled programs again
        expected, actual = outcome(eager, scenario), outcome(lowered, scenario)
        assert actual[0] == expected[0], actual[0]
        assert_same(actual[1], expected[1])


class Chain(nn.Module):
    """Some activations that are read again in the backward: the input, results of their own, a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x))
        return torch.sigmoid(h * self.scale) * x


class WritesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x))
        x.mul_(2.0)
        return h * 3.0 + x


class WritesItsInputItRead(nn.Module):
    """exp keeps its result, mul what it reads: writing to x is too late for the latter."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sin(x) * self.linear(x)
        x.add_(1.0)
        return h


class WritesAView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1.5
        x[:, 1:3].add_(1.0)
        x.t()[0].zero_()
        return self.linear(y) * x


class WritesItsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.linear(x))
        with torch.no_grad():
            self.linear.bias.add_(0.5)
        return h * self.linear.bias


class WritesTheWeightItRead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.linear(x))
        with torch.no_grad():
            self.linear.weight.mul_(0.5)
        return h


class WritesALeaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        self.linear.weight.mul_(0.5)
        return self.linear(x)


class WritesABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.rand(6, 6))
        self.weight = nn.Parameter(torch.rand(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        y = x @ (self.table + self.weight)
        self.table[1:3].add_(1.0)
        self.table.t().mul_(0.5)
        return y + self.table[0]


class WritesABufferItRead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.rand(6))
        self.weight = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        y = x * (self.table * self.weight)
        self.table.add_(1.0)
        return y


class WritesThroughGradients(nn.Module):
    """A buffer that takes part in autograd once something with a gradient is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros(4, 6)
        y[:, :3] = self.linear(x)[:, :3]
        y[1:, 3:].add_(torch.tanh(x[1:, 3:]))
        y.t()[4].mul_(2.0)
        return y * y


class WritesWhatTanhKeeps(nn.Module):
    """The method's own value: written to after tanh has kept it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.linear(x))
        h.mul_(2.0)
        return h + x


class WritesWhatSinRead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        s = torch.sin(h)
        h += 1.0
        return h * s


class WritesAViewOfItsOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.exp(self.linear(x))
        h[:, 0].zero_()
        return h * x


class WritesWhatNobodyKeeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.linear(x))
        h += x
        h.relu_()
        h = h * 1.0
        h.add_(1.0).sigmoid_()
        return h


class ReturnsViews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        h = torch.tanh(self.linear(x))
        return h, h.t(), h[1:, ::2], x.view(-1)


class ReturnsChunks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> List[Tensor]:
        return torch.chunk(torch.tanh(self.linear(x)), 2, 1)


class ReturnsStateAndInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))
        self.register_buffer("state", torch.zeros(6))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        self.state.add_(x.detach().mean(0))
        return x * self.weight, self.weight[1:], self.state, x


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


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape or (4, 6)).requires_grad_()


def trained(output: Tensor, *watched: Tensor) -> List[Tensor]:
    """After a backward: the output, what is watched, and its gradients."""
    output.square().sum().backward()
    return [output, *watched, *[t.grad for t in watched if t.is_leaf]]


# ---- inputs ----


@case("input_not_a_leaf_written_inside", WritesItsInput)
def _(module: nn.Module) -> List[Tensor]:
    first = leaf()
    x = first * 1.0
    output = module(x)
    return trained(output, first, x)


@case("input_without_gradient_written_inside", WritesItsInput)
def _(module: nn.Module) -> List[Tensor]:
    x = torch.randn(4, 6)
    return trained(module(x), x)


@case("leaf_written_inside", WritesItsInput)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("input_written_after_it_was_read", WritesItsInputItRead)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf() * 1.0))


@case("views_of_the_input_written_inside", WritesAView)
def _(module: nn.Module) -> List[Tensor]:
    first = leaf()
    x = first * 1.0
    return trained(module(x), first, x)


@case("a_view_given_and_written_inside", WritesItsInput)
def _(module: nn.Module) -> List[Tensor]:
    first = leaf(8, 6)
    whole = first * 1.0
    output = module(whole[::2])
    return trained(output + whole[1::2], first, whole)


@case("input_written_after_the_call", Chain)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf() * 1.0
    output = module(x)
    x.mul_(2.0)
    return trained(output)


@case("base_of_the_input_written_after_the_call", Chain)
def _(module: nn.Module) -> List[Tensor]:
    whole = torch.randn(8, 6)
    output = module(whole[:4])
    whole[6:].zero_()
    return trained(output)


@case("input_written_after_the_backward", Chain)
def _(module: nn.Module) -> List[Tensor]:
    x = torch.randn(4, 6)
    results = trained(module(x))
    x.mul_(2.0)
    return results + trained(module(x), x)


# ---- parameters and buffers ----


@case("parameter_written_inside", WritesItsParameter)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("parameter_written_inside_after_it_was_read", WritesTheWeightItRead)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("leaf_parameter_written_inside", WritesALeaf)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(torch.randn(4, 6)))


@case("parameter_written_between_two_calls", Chain)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    first = module(x)
    with torch.no_grad():
        module.scale[1:].mul_(3.0)
    second = module(x)
    return trained(second) + trained(first)


@case("view_of_a_parameter_written_after_the_call", Chain)
def _(module: nn.Module) -> List[Tensor]:
    output = module(torch.randn(4, 6))
    with torch.no_grad():
        module.linear.weight.t()[0].zero_()
    return trained(output)


@case("buffer_written_inside", WritesABuffer)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("buffer_written_inside_after_it_was_read", WritesABufferItRead)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("buffer_written_after_the_call", WritesABuffer)
def _(module: nn.Module) -> List[Tensor]:
    output = module(leaf())
    module.table.fill_(0.25)
    return trained(output) + trained(module(leaf()))


# ---- the method's own values ----


@case("own_value_filled_part_by_part", WritesThroughGradients)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    return trained(module(x), x)


@case("own_value_written_that_tanh_keeps", WritesWhatTanhKeeps)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("own_value_written_that_sin_read", WritesWhatSinRead)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("view_of_an_own_value_written_that_exp_keeps", WritesAViewOfItsOwn)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf()))


@case("own_value_written_that_nobody_keeps", WritesWhatNobodyKeeps)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    return trained(module(x), x)


# ---- outputs ----


@case("output_written_before_the_backward", WritesWhatNobodyKeeps)
def _(module: nn.Module) -> List[Tensor]:
    output = module(leaf())
    output.mul_(2.0)
    return trained(output)


@case("output_written_that_nobody_keeps", Chain)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    output = module(x)
    output.mul_(2.0)
    output[1:, :2].add_(torch.ones(2))
    return trained(output, x)


@case("output_written_after_the_backward", Chain)
def _(module: nn.Module) -> List[Tensor]:
    output = module(leaf())
    loss = output.square().sum()
    loss.backward(retain_graph=True)
    with torch.no_grad():
        output.zero_()
    module.zero_grad()
    loss.backward()
    return [output]


@case("output_detached_and_written", WritesWhatNobodyKeeps)
def _(module: nn.Module) -> List[Tensor]:
    output = module(leaf())
    output.detach().mul_(2.0)
    return trained(output)


@case("returned_views", ReturnsViews)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    outputs = module(x)
    sum(output.square().sum() for output in outputs).backward()
    return [*outputs, x.grad, torch.tensor([output._is_view() for output in outputs])]


@case("returned_views_share_memory", ReturnsViews)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    h, transposed, part, flat = module(x * 1.0)
    flat.mul_(3.0)
    transposed[0] = 1.0
    part.add_(5.0)
    return trained(h.sum() * flat.sum(), x, transposed, part)


@case("returned_view_written", ReturnsViews)
def _(module: nn.Module) -> List[Tensor]:
    flat = module(leaf())[3]
    flat.mul_(3.0)
    return trained(flat)


@case("returned_chunk_written", ReturnsChunks)
def _(module: nn.Module) -> List[Tensor]:
    chunks = module(leaf())
    chunks[0].mul_(2.0)
    return trained(chunks[0])


@case("returned_chunks", ReturnsChunks)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    chunks = module(x)
    return trained(chunks[0] * chunks[1], x)


@case("returned_state_and_input", ReturnsStateAndInput)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    output, weight, state, same = module(x)
    assert state.data_ptr() == module.state.data_ptr()
    assert same.data_ptr() == x.data_ptr() and weight._base is not None
    return trained(output * state + same, x) + trained(weight * 2.0)


@case("returned_state_written", ReturnsStateAndInput)
def _(module: nn.Module) -> List[Tensor]:
    output, _, state, _ = module(leaf())
    state.mul_(2.0)
    return trained(output * state)


@case("returned_parameter_written", ReturnsStateAndInput)
def _(module: nn.Module) -> List[Tensor]:
    output, weight, _, _ = module(leaf())
    weight.mul_(2.0)
    return trained(output)


# ---- one tensor in several places ----


@case("same_leaf_twice", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    return trained(module(x, x), x)


@case("same_memory_twice", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf(6, 6)
    return trained(module(x, x.t()), x)


@case("detached_twin", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    return trained(module(x.detach(), x), x)


@case("same_tensor_twice_written_inside", WritesOneOfTwo)
def _(module: nn.Module) -> List[Tensor]:
    first = leaf()
    x = first * 1.0
    return trained(module(x, x), first)


@case("view_and_base_written_inside", WritesOneOfTwo)
def _(module: nn.Module) -> List[Tensor]:
    first = leaf(5, 6)
    x = first * 1.0
    return trained(module(x[1:], x[:-1].detach()), first, x)


@case("output_given_again", Chain)
def _(module: nn.Module) -> List[Tensor]:
    x = leaf()
    once = module(x)
    return trained(module(once) + once, x)


@case("parameter_given_as_input", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module(leaf(6, 6), module.linear.weight))


# ---- layouts ----


@case("expanded_input", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    row, column = leaf(1, 6), leaf(4, 1)
    return trained(module(row.expand(4, 6), column.expand(-1, 6)), row, column)


@case("expanded_input_written_inside", WritesItsInput)
def _(module: nn.Module) -> List[Tensor]:
    return trained(module((leaf(1, 6) * 1.0).expand(4, 6)))


@case("broadcast_inputs", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    x, y = leaf(3, 1, 6), leaf(1, 6)
    return trained(module(x, y), x, y)


@case("not_contiguous", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    x, y = leaf(6, 4), leaf(4, 12)
    output = module(x.t(), y[:, ::2])
    return trained(output, x, y, torch.tensor(output.stride()))


@case("flipped_strides_after_straight_ones", Pairs)
def _(module: nn.Module) -> List[Tensor]:
    x, y = leaf(6, 6), leaf(6, 6)
    return trained(module(x, y), x, y) + trained(module(x.t(), y.t()), x, y)


@case("zero_size", Pairs)
def _(module: nn.Module) -> List[Tensor]:
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
def _(module: nn.Module) -> List[Tensor]:
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    output = module(x)
    strides = torch.tensor(output.stride())
    return trained(output, x) + [strides, torch.tensor(x.grad.stride())]


@case("channels_last_after_contiguous", Convolutions)
def _(module: nn.Module) -> List[Tensor]:
    values, results = torch.randn(2, 3, 5, 5), []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = values.clone(memory_format=layout).requires_grad_()
        output = module(x)
        results += trained(output, x) + [torch.tensor(output.stride()), torch.tensor(x.grad.stride())]
    return results


@case("channels_last_weights", Convolutions)
def _(module: nn.Module) -> List[Tensor]:
    module.to(memory_format=torch.channels_last)
    output = module(torch.randn(2, 3, 5, 5))
    results = trained(output) + [torch.tensor(p.grad.stride()) for p in module.parameters()]
    module.to(memory_format=torch.contiguous_format)
    return results


class Numbers(nn.Module):
    """Tensors without dimensions among others."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.count.add_(1)
        return torch.tanh(x * self.scale) * y + x.sum() / self.count


@case("no_dimensions", Numbers)
def _(module: nn.Module) -> List[Tensor]:
    x, y = torch.tensor(0.5, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    return trained(module(x, y), x, y)


@case("no_dimensions_among_others", Numbers)
def _(module: nn.Module) -> List[Tensor]:
    x, y = leaf(3, 2), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    return trained(module(x, y), x, y)


class OfAnyType(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = x * y + torch.sin(x)
        h = h.clone()
        h[1:] *= 2
        return h @ y.t() - h.mean()


def typed(dtype: torch.dtype, other: torch.dtype) -> Scenario:
    def scenario(module: nn.Module) -> List[Tensor]:
        x = torch.randn(4, 4, dtype=dtype).requires_grad_()
        y = torch.randn(4, 4, dtype=other).requires_grad_()
        output = module(x, y)
        output.abs().square().sum().backward()
        return [output, x.grad, y.grad]

    return scenario


for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64):
    case(f"all_{dtype}".replace("torch.", ""), OfAnyType)(typed(dtype, dtype))


@case("types_one_after_the_other", OfAnyType)
def _(module: nn.Module) -> List[Tensor]:
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
def _(module: nn.Module) -> List[Tensor]:
    x, index = leaf(), torch.tensor([0, 3, 3, 5])
    return trained(module(x, index), x) + [index]


@case("integers_written_after_the_call", ReadsIntegers)
def _(module: nn.Module) -> List[Tensor]:
    index = torch.tensor([0, 3, 3, 5])
    output = module(leaf(), index)
    index.zero_()
    return trained(output)


class NewTensors(nn.Module):
    """Constants of the program are new tensors at each call."""

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        zeros = torch.zeros(6)
        pair = torch.stack([torch.ones(6), torch.zeros(6)])
        return x * pair[0] + zeros, zeros, pair


@case("new_tensors_written_by_the_caller", NewTensors)
def _(module: nn.Module) -> List[Tensor]:
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
def _(module: nn.Module) -> List[Tensor]:
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
def _(module: nn.Module) -> List[Tensor]:
    graph = torch.eye(4).roll(1, 0).to_sparse()
    x = leaf()
    return trained(module(graph, x), x)


@case("sparse_input_with_gradient", SparseProduct)
def _(module: nn.Module) -> List[Tensor]:
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
def _(module: nn.Module) -> List[Tensor]:
    q = torch.quantize_per_tensor(torch.randn(4, 6), 0.1, 10, torch.quint8)
    return trained(module(q))
