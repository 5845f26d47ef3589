"""The gradients of parts of a tensor are added up in one operator, with the bits of eager PyTorch's sum."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import passes
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy


def selects(x: Tensor, n: int) -> Tensor:
    return x[:, 0] * 2 + x[:, 1] * x[:, 2] + x[:, -1]


def one_column_twice(x: Tensor, n: int) -> Tensor:
    return x[:, 0] * 2 + x[:, 0] * x[:, 2] + x[:, -1] * x[:, 5]


def first_and_last(x: Tensor, n: int) -> Tensor:
    return x[0] * x[-1].sin()


def first_and_last_beside_the_whole(x: Tensor, n: int) -> Tensor:
    return (x[0] * x[-1].sin()).sum() + (x * x.exp()).sum() + (x[1:2, 0] * 3).sum()


def one_row(x: Tensor, n: int) -> Tensor:
    """The first row is the last one."""
    y = torch.tanh(x[:1])
    return (y[0] * y[-1].sin()).sum() + (y * y.exp()).sum() + (y[0].cos() * y[-1].exp()).sum()


def loop(x: Tensor, n: int) -> Tensor:
    state = x[:, 0]
    for t in range(1, x.size(1)):
        state = torch.sin(state + x[:, t])
    return state


def parts_with_a_gap(x: Tensor, n: int) -> Tensor:
    return x[:, 1:2].sin() * x[:, 3:5]


def halves(x: Tensor, n: int) -> Tensor:
    return x[:, :n].sin().sum() * x[:, n:].cos().sum()


def overlap(x: Tensor, n: int) -> Tensor:
    return x[:, :-1].sin() * x[:, 1:]


def from_the_end(x: Tensor, n: int) -> Tensor:
    return x[:, :-3].sin() * x[:, -3:]


def every_second(x: Tensor, n: int) -> Tensor:
    return x[:, 0::2].sin() * x[:, 1::2]


def two_of_three(x: Tensor, n: int) -> Tensor:
    return x[:, 0::3].sin() * x[:, 2::3]


def along_two_dimensions(x: Tensor, n: int) -> Tensor:
    return x[:2].sin().sum() * x[2:].sum() * x[:, :3].sum() * x[:, 3:].cos().sum()


def narrow(x: Tensor, n: int) -> Tensor:
    return x.narrow(1, 0, 2).sin() * x.narrow(1, 2, 2) * x.narrow(1, 4, 2).exp()


def rotated(x: Tensor, n: int) -> Tensor:
    half = x.size(1) // 2
    return x * x.cos() + torch.cat([-x[:, half:], x[:, :half]], 1) * x.sin()


def parts_between_wholes(x: Tensor, n: int) -> Tensor:
    return (
        (x[:, :3].sin() * x[:, 3:]).sum() + (x * x.cos()).sum() + x[:, 2].exp().sum() + (x[:, 4].exp() * x.sum()).sum()
    )


def negative_zeros(x: Tensor, n: int) -> Tensor:
    return (x[:, :3] * -0.0).sum() + (x[:, 3:5] * -0.0).sum()


def nothing_and_everything(x: Tensor, n: int) -> Tensor:
    return x[:, :0].sin().sum() + x[:, 0:6].cos().sum()


READERS = [
    selects,
    one_column_twice,
    first_and_last,
    first_and_last_beside_the_whole,
    one_row,
    loop,
    parts_with_a_gap,
    halves,
    overlap,
    from_the_end,
    every_second,
    two_of_three,
    along_two_dimensions,
    narrow,
    rotated,
    parts_between_wholes,
    negative_zeros,
    nothing_and_everything,
]


class Reads(nn.Module):
    def __init__(self, read: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.read = read

    def forward(self, x: Tensor, n: int) -> Tensor:
        return self.read(torch.tanh(x), n).sum()


def bits(tensor: Tensor) -> list[int]:
    """Tells 0 from -0, unlike torch.equal."""
    integer = {8: torch.int64, 4: torch.int32, 2: torch.int16}[tensor.element_size()]
    return tensor.contiguous().view(integer).flatten().tolist()


def gradient(module: nn.Module, x: Tensor, n: int) -> list[int]:
    given = x.clone().requires_grad_()
    module(given, n).backward()
    assert given.grad is not None
    return bits(given.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_gradients_have_the_bits_of_eager(
    read: Callable[[Tensor, int], Tensor], strategy: str, dtype: torch.dtype
) -> None:
    eager = Reads(read)
    lowered = lowered_copy(torch.jit.script(eager), strategy)
    # -2 and 9 are bounds from the end and behind it.
    for n in (3, 0, 6, -2, 9) if read is halves else (3, 3):
        x = torch.randn(4, 6).to(dtype)
        assert gradient(lowered, x, n) == gradient(eager, x, n)


class TwoResults(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.tanh(x)
        return y[:, 0].sin(), y[:, 1].cos(), y[:, 2:].exp()


@pytest.mark.parametrize("used", [[0], [1], [0, 1], [0, 2], [0, 1, 2]])
def test_results_without_a_gradient_leave_their_parts_out(used: list[int]) -> None:
    lowered = lowered_copy(torch.jit.script(TwoResults()), "none")
    x = torch.randn(4, 6)
    gradients = []
    for module in (TwoResults(), lowered):
        given = x.clone().requires_grad_()
        results = module(given)
        sum((results[i] * -0.0).sum() + results[i][0].sum() for i in used).backward()
        assert given.grad is not None
        gradients.append(bits(given.grad))
    assert gradients[0] == gradients[1]


class Steps(nn.Module):
    """A recurrent cell that a method calls for one time after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(32, 32)
        self.cell = nn.GRUCell(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.embed(x))
        state = torch.zeros(x.size(0), 8)
        for t in range(x.size(1)):
            state = self.cell(y[:, t], state)
        return state.sum()


def peak(module: nn.Module, x: Tensor, tracker: Tracker) -> int:
    """Returns the peak of one step, in bytes."""
    module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as measured:
        module(x).backward()
    return measured.bytes


@pytest.mark.parametrize("strategy", ["none", "segments"])
def test_a_loop_over_time_takes_less_memory_than_eager(strategy: str, tracker: Tracker, one_thread: None) -> None:
    torch.manual_seed(0)
    eager, x = Steps(), torch.randn(8, 64, 32)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), strategy)

    of_eager = [peak(eager, x, tracker) for _ in range(2)][-1]
    sequence = x.numel() * x.element_size()
    # Eager has one gradient of the sequence more, for the part that it adds to the other one.
    assert max(peak(lowered, x, tracker) for _ in range(3)) <= of_eager - sequence // 2
    expected = dict(eager.named_parameters())
    assert_same([p.grad for p in lowered.parameters()], [expected[name].grad for name, _ in lowered.named_parameters()])


class ReadsBesideALargeState(nn.Module):
    """The gradient of what it reads at a time is a part of the gradient of all that the cell is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.mixing = nn.Parameter(torch.randn(64, 68) / 8, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.embed(x))
        state = torch.zeros(x.size(0), 64)
        for t in range(x.size(1)):
            state = torch.nn.functional.linear(torch.cat([y[:, t], state], 1), self.mixing)
        return state.sum()


def test_a_gradient_of_a_part_does_not_keep_what_it_is_a_view_of(tracker: Tracker, one_thread: None) -> None:
    torch.manual_seed(0)
    eager, x = ReadsBesideALargeState(), torch.randn(8, 64, 4)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none")

    of_eager = [peak(eager, x, tracker) for _ in range(2)][-1]
    assert max(peak(lowered, x, tracker) for _ in range(3)) <= of_eager


def three_columns(x: Tensor, n: int) -> Tensor:
    y = torch.sin(x)
    return y[:, 0] * y[:, 1] * y[:, 2]


def halves_of_sine(x: Tensor, n: int) -> Tensor:
    y = torch.sin(x)
    return y[:, :n] * y[:, n:]


def overlap_of_sine(x: Tensor, n: int) -> Tensor:
    y = torch.sin(x)
    return y[:, :-1] * y[:, 1:]


def test_one_operator_stands_for_disjoint_parts_alone() -> None:
    def operators(read: Callable[[Tensor, int], Tensor]) -> list[str]:
        (graph,) = passes.run("inline_modules", torch.jit.script(read).graph)
        (graph,) = passes.run("remove_whole_slices", graph)
        (joint,) = passes.run("differentiate", graph)
        return [node.kind() for node in joint.nodes()]

    assert operators(three_columns).count("aten_recompute::selects_backward") == 1
    assert "aten::select_backward" not in operators(three_columns)
    assert operators(halves_of_sine).count("aten_recompute::slices_backward") == 1
    assert "aten_recompute::slices_backward" not in operators(overlap_of_sine)
