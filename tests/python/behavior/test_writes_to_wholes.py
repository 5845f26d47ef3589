"""Writes to views that show all of a tensor: the tensor keeps its layout and its history, as in eager PyTorch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy


def transposed_into_all(a: Tensor, b: Tensor) -> Tensor:
    v = torch.zeros_like(b)
    v[:, :] = a.t()
    return v.view(-1) * b.view(-1)


def all_rows(a: Tensor, b: Tensor) -> Tensor:
    v = torch.zeros_like(b)
    v[:] = a.t()
    return v.view(-1) * b.view(-1)


def over_a_result(a: Tensor, b: Tensor) -> Tensor:
    v = b * 1.5
    v[:, :] = a
    return v * 2


def number_over_a_result(a: Tensor, b: Tensor) -> Tensor:
    v = b * 1.5
    v[:, :] = 0.5
    return v * 2 + a.detach() * 0


def part_of_all(a: Tensor, b: Tensor) -> Tensor:
    v = b * 1.5
    v[:, :][:, 1:3][:] = a[:, 1:3]
    v[:, :][:, 0] += a[:, 1]
    return v.view(-1) * 2


def all_of_part(a: Tensor, b: Tensor) -> Tensor:
    v = b * 1.5
    v[1, :][:] = a[:, 1]
    v.t()[:, :][2] *= 2
    return v.view(-1) * 2


def copied_into_transposed(a: Tensor, b: Tensor) -> Tensor:
    v = torch.zeros_like(b)
    v.t().copy_(a)
    return v.view(-1) * b.view(-1)


def copied_behind_a_new_dimension(a: Tensor, b: Tensor) -> Tensor:
    v = torch.zeros_like(b)
    v[None].copy_(a.t())
    return v.view(-1) * b.view(-1)


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.function(a, b)


@pytest.mark.parametrize(
    "write",
    [
        transposed_into_all,
        all_rows,
        over_a_result,
        number_over_a_result,
        part_of_all,
        all_of_part,
        copied_into_transposed,
        copied_behind_a_new_dimension,
    ],
)
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_writes_to_views_of_all_elements(write: Callable[[Tensor, Tensor], Tensor], strategy: str) -> None:
    torch.manual_seed(0)
    eager = Calls(write)
    lowered = lowered_copy(torch.jit.script(eager), strategy)
    for _ in range(3):
        tensors = torch.randn(4, 4), torch.randn(4, 4)
        results = []
        for module in (eager, lowered):
            inputs = [tensor.clone().requires_grad_() for tensor in tensors]
            output = module(*inputs)
            assert output.requires_grad
            output.sum().backward()
            results.append([output, *(each.grad for each in inputs)])
        assert results[0][0].stride() == results[1][0].stride()
        assert_same(results[1], results[0])
