"""Views that a method both reads and returns: gradients of all readers are added before they pass through the view."""

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy


class Queries(nn.Module):
    """As in DETR, the queries, which are expanded to the batch, are returned, too."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        queries = self.queries.unsqueeze(0).expand(x.size(0), -1, -1)
        return torch.tanh(x + queries), queries


class FirstSample(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x[0]
        return first * 2 + x.sum(), first


class ExpandedSample(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x[:1].expand(5, -1, -1)
        return torch.sin(first), first


class SizedByAnother(nn.Module):
    """The size of the view is computed from that of another view."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        half = x[: x.size(0) // 2]
        wide = x[:1].expand(half.size(0) + 1, x.size(1), x.size(2))
        return torch.tanh(wide).sum(0), wide, torch.sin(half)


class ReadBefore(nn.Module):
    """What reads the argument before the view is made adds to its gradient after the view."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = torch.tanh(x)
        first = x[0]
        return before + first * first, first


class SumOfEinsum(nn.Module):
    """An einsum of one tensor is a view or, as here, a sum, which is a part of the region."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.einsum("abc->", x), x.view(-1), x.sin()


@pytest.mark.parametrize("model", [Queries, FirstSample, ExpandedSample, SizedByAnother, ReadBefore, SumOfEinsum])
@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_a_view_that_is_returned(model: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    eager = model()
    lowered = lowered_copy(eager, "none")
    x = torch.randn(9, 6, 8)
    results = []
    for module in (eager, lowered):
        for _ in range(2):
            module.zero_grad()
            leaf = x.clone().requires_grad_()
            outputs = module(leaf)
            generator = torch.Generator().manual_seed(seed)
            torch.autograd.backward(outputs, [torch.randn(each.shape, generator=generator) for each in outputs])
        results.append([*outputs, leaf.grad, *(parameter.grad for parameter in module.parameters())])
    assert [each._is_view() for each in results[0]] == [each._is_view() for each in results[1]]
    assert_same(results[1], results[0])


def test_writes_to_a_returned_view_reach_the_argument() -> None:
    lowered = lowered_copy(FirstSample(), "none")
    x = torch.randn(9, 6, 8)
    _, first = lowered(x)
    first.zero_()
    assert x[0].count_nonzero() == 0


class ExpandedAndMultiplied(nn.Module):
    """The first gradient that is added is expanded, and decides how the sum lies in memory."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x[:1].expand(8, -1, -1)
        return torch.einsum("abc,abd->b", [wide, torch.bmm(wide, wide.transpose(1, 2))]).cos()


@pytest.mark.parametrize("seed", range(4))
def test_a_sum_of_gradients_lies_in_the_order_of_the_first(seed: int) -> None:
    torch.manual_seed(seed)
    eager = ExpandedAndMultiplied()
    lowered = lowered_copy(eager, "none")
    gradients = []
    for module in (eager, lowered):
        x = torch.randn(9, 6, 8, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        module(x).sum().backward()
        gradients.append(x.grad)
    assert_same(gradients[1:], gradients[:1])


class SavesAView(nn.Module):
    """What the backward reads is a view of what the method returns, in a method that asks for a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = x.detach().clone().requires_grad_(True)
        hidden = torch.tanh(positions * self.weight)
        copy = hidden.detach().clone()
        energy = (torch.sin(copy.t() * hidden.t()) ** 3).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return copy, (energy * force).sum()


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_write_to_a_result_is_noticed_where_a_view_of_it_was_saved(strategy: str) -> None:
    lowered = lowered_copy(SavesAView(), strategy)
    copy, result = lowered(torch.rand(3, 4))
    with torch.no_grad():
        copy.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


class ReturnsTheArgument(nn.Module):
    """An operator that has nothing to do returns the argument itself, which is saved and returned."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        same = x.contiguous()
        positions = same.detach().requires_grad_(True)
        gradient = torch.autograd.grad([torch.sin(positions * same).sum()], [positions], create_graph=True)[0]
        assert gradient is not None
        return same, (gradient * torch.cos(same)).sum()


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_an_argument_keeps_its_version(strategy: str) -> None:
    lowered = lowered_copy(ReturnsTheArgument(), strategy)
    start = torch.rand(3, 4, requires_grad=True)
    x = (start * 2).mul_(2).add_(1)
    _, result = lowered(x)
    assert x._version == 2
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
