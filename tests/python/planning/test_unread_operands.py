"""An operand of a product that no gradient reads is not kept, as in eager PyTorch."""

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy, only_variant

ROWS = 64
COLUMNS = 32
BYTES = ROWS * COLUMNS * 4


class Product(nn.Module):
    """A product of x * 2, which no gradient needs by itself, with a tensor that has no gradient."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("matrix", torch.randn(COLUMNS, COLUMNS))
        self.register_buffer("factor", torch.randn(ROWS, COLUMNS))

    def forward(self, x: Tensor) -> Tensor:
        h = x * 2
        if self.kind == "einsum of two":
            return torch.einsum("bi,ij->bj", h, self.matrix)
        elif self.kind == "einsum of two, the second":
            return torch.einsum("ij,bi->bj", self.matrix, h)
        elif self.kind == "einsum of three":
            return torch.einsum("bi,ij,bj->bj", h, self.matrix, self.factor)
        elif self.kind == "einsum of one":
            return torch.einsum("bi->ib", h)
        elif self.kind == "einsum without sum":
            return torch.einsum("bi,bi->bi", self.factor, h)
        elif self.kind == "tensordot":
            return torch.tensordot(h, self.matrix, dims=([1], [0]))
        return torch.tensordot(self.matrix, h, dims=([0], [1]))


KINDS = (
    "einsum of two",
    "einsum of two, the second",
    "einsum of three",
    "einsum of one",
    "einsum without sum",
    "tensordot",
    "tensordot, the second",
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_gradient_reads_is_not_kept(kind: str) -> None:
    module = Product(kind)
    lowered = lowered_copy(module, "none", profile=True)
    x, y = (torch.full((ROWS, COLUMNS), 0.5, requires_grad=True) for _ in range(2))
    of_module, of_lowered = module(x), lowered(y)
    assert_same([of_lowered], [of_module])
    of_module.sum().backward()
    of_lowered.sum().backward()
    assert_same([y.grad], [x.grad])
    assert only_variant(lowered)["predicted_saved_bytes"] - BYTES < BYTES / 4, "only the result is alive"


class Force(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.product = Product(kind)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        energy = torch.tanh(self.product(x)).sum()
        force = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert force is not None
        return energy, force


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_gradients_of_gradients(kind: str, strategy: str) -> None:
    """They are computed by rules, not on a tape."""
    module = Force(kind).double()
    lowered = lowered_copy(module, strategy)
    x, y = (torch.randn(ROWS, COLUMNS, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) for _ in "ab")
    for each, input in ((module, x), (lowered, y)):
        energy, force = each(input)
        (energy**2 + (force**3).sum()).backward()
    assert x.grad is not None
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-12, atol=1e-12)
    assert only_variant(lowered)["on_tape"] == []


@pytest.mark.parametrize("operator", ["einsum", "tensordot"])
@pytest.mark.parametrize("trained", ["first", "second", "both"])
def test_either_operand_of_a_product_that_is_differentiated_twice(operator: str, trained: str) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 4, dtype=torch.float64))
            self.einsum = operator == "einsum"
            self.first = trained == "first"
            self.second = trained == "second"

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = torch.sin(x), torch.cos(x[:5, :4] * self.weight)
            if self.first:
                b = b.detach()
            if self.second:
                a = a.detach()
            if self.einsum:
                y = torch.einsum("bi,ij->bj", a, b)
            else:
                y = torch.tensordot(a, b, dims=([1], [0]))
            force = torch.autograd.grad([y.tanh().sum()], [x], create_graph=True)[0]
            assert force is not None
            return y, force

    torch.manual_seed(0)
    module = Both()
    lowered = lowered_copy(module, "all")
    gradients = []
    for each in (module, lowered):
        x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
        y, force = each(x)
        ((y**2).sum() + (force**3).sum()).backward()
        gradients.append([x.grad, *(parameter.grad for parameter in each.parameters())])
    for of_module, of_lowered in zip(*gradients, strict=True):
        assert (of_module is None) == (of_lowered is None)
        if of_module is not None:
            torch.testing.assert_close(of_lowered, of_module, rtol=1e-12, atol=1e-12)
    assert only_variant(lowered)["on_tape"] == []
