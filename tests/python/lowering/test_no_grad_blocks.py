"""Blocks of torch.no_grad() are part of a region; what they compute requires no gradient, as in eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy, num_regions, tensors_in

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)


class Results(Net):
    """Results of operators, the method's own tensors that were made inside, and numbers."""

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            k = self.layer(h) * 2
            k.add_(1)
            k[0] = 3.0
            t = torch.zeros(6)
            t[1:3] += h[0, 1:3]
            w = torch.mv(self.layer.weight.t(), t)
            inner = h[1:] * 2
            assert not torch.is_grad_enabled()
        return h * k + t * w, k, inner, torch.cat([inner, h])


class Nested(Net):
    """A norm inside, blocks in blocks, and loops."""

    def forward(self, x: Tensor) -> Any:
        h = self.layer(x)
        with torch.no_grad():
            for i in range(2):
                h = torch.relu(self.norm(h))
                with torch.no_grad():
                    h = h + i
            h = h * 2
        return torch.sigmoid(self.layer(h)), h


class Detaches(Net):
    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            d = h.detach()
            e = x.detach()
        return h * d + e, d, e


class ViewOfLeaf(Net):
    """Under no_grad(), a view of a leaf is a leaf that requires a gradient."""

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            y = x.view(-1)
            z = y[:6]
        return y * 2, z * 3, torch.tanh(self.layer(x))


class ViewOfResult(Net):
    """The same holds for a view of any tensor that requires a gradient, and for views of views."""

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            y = h[1:]
            z = y.t()[:2]
        return y * 2, z, h


class ViewsInAList(Net):
    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            parts = [h[:1], h[1:]]
        return torch.cat(parts), h


class OperandItself(Net):
    """What returns its operand has its history, also under no_grad()."""

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            y = torch.dropout(h, 0.5, False)
            z = h.contiguous()
        return y * 2, z * 3


class WritesToOwn(Net):
    def forward(self, x: Tensor) -> Any:
        h = self.layer(x) * 2
        with torch.no_grad():
            h.mul_(3)
            h[0] = 1.0
        return torch.relu(h), x + 1


class Pieces(Net):
    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            a, b = h.chunk(2, 1)
            c = a * b
        return h.sum() + c, a * 2


def trained(module: nn.Module, x: Tensor) -> list[Tensor | None]:
    module.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    results = tensors_in(module(x))
    losses = [(r * torch.linspace(0, 1, r.numel()).view_as(r)).sum() for r in results if r.requires_grad]
    torch.stack(losses).sum().backward()
    flags = torch.tensor([[float(r.requires_grad), float(r.is_leaf)] for r in results])
    return [flags, *results, x.grad, *(p.grad for p in module.parameters()), *module.buffers()]


@pytest.mark.parametrize("strategy", ["none", "all", "min_cut", "segments"])
@pytest.mark.parametrize(
    ("make", "regions"),
    [
        (Results, 1),
        (Nested, 1),
        (Detaches, 1),
        (ViewOfLeaf, None),
        (ViewOfResult, None),
        (ViewsInAList, None),
        (OperandItself, None),
        (WritesToOwn, None),
        (Pieces, None),
    ],
)
def test_equals_eager(make: Callable[[], nn.Module], regions: int | None, strategy: str) -> None:
    torch.manual_seed(0)
    eager = make()
    lowered = lowered_copy(eager, strategy)
    for rows in (4, 4, 5, 4):
        x = torch.randn(rows, 6)
        assert_same(trained(lowered, x), trained(eager, x))
        with torch.no_grad():
            assert_same(tensors_in(lowered(x)), tensors_in(eager(x)))
    if regions is not None:
        assert set(num_regions(lowered)) == {regions}
