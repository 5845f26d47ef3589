"""Cases of test_aliasing.py: writes to inputs, state, values of the method and outputs; views that are returned."""

from typing import Any

import torch
from torch import Tensor, nn

from support.alias_cases import Chain, WritesItsInput, case, leaf, trained


class WritesItsInputItRead(nn.Module):
    """Writes to x after sin and mul have read it, whose backward needs it."""

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
    """A new tensor takes part in autograd once a tensor with a gradient is written to it."""

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
    """Writes to a value of the method that the backward of tanh needs."""

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

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h = torch.tanh(self.linear(x))
        return h, h.t(), h[1:, ::2], x.view(-1)


class ReturnsChunks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> list[Tensor]:
        return torch.chunk(torch.tanh(self.linear(x)), 2, 1)  # type: ignore[return-value]


class ReturnsStateAndInput(nn.Module):
    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))
        self.register_buffer("state", torch.zeros(6))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        self.state.add_(x.detach().mean(0))
        return x * self.weight, self.weight[1:], self.state, x


# ---- inputs ----


class WritesWhatAnIdleDropoutReturned(nn.Module):
    """A dropout that does nothing returns its argument, so what is written to later is in the list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x) * 0.5
        steps = [h]
        for i in range(3):
            h += i
            steps.append(torch.dropout(h, 0.5, False))
        return torch.cat(steps, 1)


class WritesPieces(nn.Module):
    """Rows of 13 numbers, which lie apart in memory, are no whole vectors, so that it shows where stretches end."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 39)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.linear(x).unsafe_chunk(3, 1)
        a = a.add_(x.sum()).sigmoid_()
        b = b.mul_(0.3).tanh_()
        c.sub_(0.3)
        return torch.tanh(a) * b.exp() + c.sigmoid()


class DrawsNumbersInParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 39)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.linear(x)
        y[:, :13].normal_()
        y.t()[13:26].bernoulli_(0.3)
        a, b, c = self.linear(x).unsafe_chunk(3, 1)
        a.uniform_()
        b.normal_()
        c.exp_()
        return y, torch.sigmoid(a) * c, b


@case("input_not_a_leaf_written_inside", WritesItsInput)
def _(module: Any) -> list[Tensor | None]:
    first = leaf()
    x = first * 1.0
    output = module(x)
    return trained(output, first, x)


@case("input_without_gradient_written_inside", WritesItsInput)
def _(module: Any) -> list[Tensor | None]:
    x = torch.randn(4, 6)
    return trained(module(x), x)


@case("leaf_written_inside", WritesItsInput)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("input_written_after_it_was_read", WritesItsInputItRead)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf() * 1.0))


@case("views_of_the_input_written_inside", WritesAView)
def _(module: Any) -> list[Tensor | None]:
    first = leaf()
    x = first * 1.0
    return trained(module(x), first, x)


@case("a_view_given_and_written_inside", WritesItsInput)
def _(module: Any) -> list[Tensor | None]:
    first = leaf(8, 6)
    whole = first * 1.0
    output = module(whole[::2])
    return trained(output + whole[1::2], first, whole)


@case("input_written_after_the_call", Chain)
def _(module: Any) -> list[Tensor | None]:
    x = leaf() * 1.0
    output = module(x)
    x.mul_(2.0)
    return trained(output)


@case("base_of_the_input_written_after_the_call", Chain)
def _(module: Any) -> list[Tensor | None]:
    whole = torch.randn(8, 6)
    output = module(whole[:4])
    whole[6:].zero_()
    return trained(output)


@case("input_written_after_the_backward", Chain)
def _(module: Any) -> list[Tensor | None]:
    x = torch.randn(4, 6)
    results = trained(module(x))
    x.mul_(2.0)
    return results + trained(module(x), x)


# ---- parameters and buffers ----


@case("parameter_written_inside", WritesItsParameter)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("parameter_written_inside_after_it_was_read", WritesTheWeightItRead)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("leaf_parameter_written_inside", WritesALeaf)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(torch.randn(4, 6)))


@case("parameter_written_between_two_calls", Chain)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    first = module(x)
    with torch.no_grad():
        module.scale[1:].mul_(3.0)
    second = module(x)
    return trained(second) + trained(first)


@case("view_of_a_parameter_written_after_the_call", Chain)
def _(module: Any) -> list[Tensor | None]:
    output = module(torch.randn(4, 6))
    with torch.no_grad():
        module.linear.weight.t()[0].zero_()
    return trained(output)


@case("buffer_written_inside", WritesABuffer)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("buffer_written_inside_after_it_was_read", WritesABufferItRead)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("buffer_written_after_the_call", WritesABuffer)
def _(module: Any) -> list[Tensor | None]:
    output = module(leaf())
    module.table.fill_(0.25)
    return trained(output) + trained(module(leaf()))


# ---- the method's own values ----


@case("own_value_filled_part_by_part", WritesThroughGradients)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    return trained(module(x), x)


@case("own_value_written_that_tanh_keeps", WritesWhatTanhKeeps)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("own_value_written_that_sin_read", WritesWhatSinRead)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("view_of_an_own_value_written_that_exp_keeps", WritesAViewOfItsOwn)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("own_value_written_that_nobody_keeps", WritesWhatNobodyKeeps)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    return trained(module(x), x)


# ---- outputs ----


@case("output_written_before_the_backward", WritesWhatNobodyKeeps)
def _(module: Any) -> list[Tensor | None]:
    output = module(leaf())
    output.mul_(2.0)
    return trained(output)


@case("output_written_that_nobody_keeps", Chain)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    output = module(x)
    output.mul_(2.0)
    output[1:, :2].add_(torch.ones(2))
    return trained(output, x)


@case("output_written_after_the_backward", Chain)
def _(module: Any) -> list[Tensor | None]:
    output = module(leaf())
    loss = output.square().sum()
    loss.backward(retain_graph=True)
    with torch.no_grad():
        output.zero_()
    module.zero_grad()
    loss.backward()
    return [output]


@case("output_detached_and_written", WritesWhatNobodyKeeps)
def _(module: Any) -> list[Tensor | None]:
    output = module(leaf())
    output.detach().mul_(2.0)
    return trained(output)


@case("returned_views", ReturnsViews)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    outputs = module(x)
    sum(output.square().sum() for output in outputs).backward()
    return [*outputs, x.grad, torch.tensor([output._is_view() for output in outputs])]


@case("returned_views_share_memory", ReturnsViews)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    h, transposed, part, flat = module(x * 1.0)
    flat.mul_(3.0)
    transposed[0] = 1.0
    part.add_(5.0)
    return trained(h.sum() * flat.sum(), x, transposed, part)


@case("returned_view_written", ReturnsViews)
def _(module: Any) -> list[Tensor | None]:
    flat = module(leaf())[3]
    flat.mul_(3.0)
    return trained(flat)


@case("returned_chunk_written", ReturnsChunks)
def _(module: Any) -> list[Tensor | None]:
    chunks = module(leaf())
    chunks[0].mul_(2.0)
    return trained(chunks[0])


@case("returned_chunks", ReturnsChunks)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    chunks = module(x)
    return trained(chunks[0] * chunks[1], x)


@case("returned_state_and_input", ReturnsStateAndInput)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    output, weight, state, same = module(x)
    assert state.data_ptr() == module.state.data_ptr()
    assert same.data_ptr() == x.data_ptr()
    assert weight._base is not None
    return trained(output * state + same, x) + trained(weight * 2.0)


@case("returned_state_written", ReturnsStateAndInput)
def _(module: Any) -> list[Tensor | None]:
    output, _, state, _ = module(leaf())
    state.mul_(2.0)
    return trained(output * state)


@case("returned_parameter_written", ReturnsStateAndInput)
def _(module: Any) -> list[Tensor | None]:
    output, weight, _, _ = module(leaf())
    weight.mul_(2.0)
    return trained(output)


@case("own_value_written_that_an_idle_dropout_returned", WritesWhatAnIdleDropoutReturned)
def _(module: Any) -> list[Tensor | None]:
    return trained(module(leaf()))


@case("pieces_written", WritesPieces)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    return trained(module(x), x)


@case("numbers_drawn_in_parts", DrawsNumbersInParts)
def _(module: Any) -> list[Tensor | None]:
    x = leaf()
    y, a, b = module(x)
    return [*trained(y * a.sum() + b.sum(), x), torch.get_rng_state()]
