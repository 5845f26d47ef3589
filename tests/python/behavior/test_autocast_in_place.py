"""Autocast casts operands of operators such as addmm, but none of in-place operators such as addmm_."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, num_compiled, scripted_copy

AROUND: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "nothing": contextlib.nullcontext,
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", dtype=torch.float16),
}


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).float()
        y.addmm_(x, self.weight)
        z = torch.zeros(4, 3, 3)
        z.baddbmm_(x.view(4, 3, 8), y.view(4, 8, 3))
        row = y.sum(1)
        row.addmv_(y, self.weight[0])
        return y + row.unsqueeze(1) + z.sum()


class OutsideOfRegions(Products):
    """Has a block of autocast that is in no region, because of what ends regions inside."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layer(x).float()
            print("between")
            y.addmm_(x, self.weight)
        return y


def step(module: nn.Module, x: Tensor, around: str) -> list[Tensor | None]:
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    with AROUND[around]():
        output = module(x)
    output.float().sin().sum().backward()
    with torch.no_grad(), AROUND[around]():
        evaluated = module(x)
    return [output.detach(), evaluated, x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("kind", [Products, OutsideOfRegions])
def test_operands_of_in_place_operators_are_not_cast(kind: type[nn.Module], strategy: str, around: str) -> None:
    torch.manual_seed(0)
    eager = kind()
    lowered = aten_recompute.lower(scripted_copy(eager), strategy)
    for _ in range(3):
        x = torch.randn(12, 8)
        assert_same(step(lowered, x, around), step(eager, x, around))
    assert kind is OutsideOfRegions or num_compiled(lowered) == 1
