"""An operator that reads one tensor twice gives it two gradients, which are added in eager PyTorch's order."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from support.helpers import assert_same, lowered_copy


class ReadsTwice(nn.Module):
    """Adds to the gradient of `h` before the operator does, so that the order of the others shows."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sin(x)
        if self.kind == "matmul":
            z = torch.matmul(h, h)
        elif self.kind == "matmul with a view":
            z = torch.matmul(h, h.transpose(-1, -2))
        elif self.kind == "power":
            z = torch.matrix_power(h, 3)
        elif self.kind == "bmm":
            z = torch.bmm(h.view(-1, 8, 8), h.view(-1, 8, 8))
        elif self.kind == "linear":
            z = F.linear(h.view(-1, 8), h.view(-1, 8))
        elif self.kind == "einsum":
            z = torch.einsum("...ij,...kj->...ik", h, h)
        elif self.kind == "tensordot":
            z = torch.tensordot(h, h, dims=([-1], [-2]))
        elif self.kind == "cat":
            z = torch.cat([h, h], -1)
        elif self.kind == "outer":
            v = h.view(-1)
            z = torch.outer(v, v) + torch.exp(v) * 0.7
        elif self.kind == "cdist":
            z = torch.cdist(h, h)
        else:
            z = torch.addcmul(h, h, h)
        return torch.sin(torch.exp(h) * 0.37).sum() + torch.cos(z).sum()


@pytest.mark.parametrize("shape", [(8, 8), (3, 8, 8), (2, 3, 8, 8)])
@pytest.mark.parametrize(
    "kind",
    [
        "matmul",
        "matmul with a view",
        "power",
        "bmm",
        "linear",
        "einsum",
        "tensordot",
        "cat",
        "outer",
        "cdist",
        "addcmul",
    ],
)
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_gradients_have_eagers_bits(kind: str, shape: tuple[int, ...], strategy: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(*shape)
    module = ReadsTwice(kind)
    lowered = lowered_copy(module, strategy)
    gradients = []
    for each in (module, lowered, lowered):
        own = x.clone().requires_grad_()
        each(own).backward()
        gradients.append(own.grad)
    assert_same(gradients[1:], gradients[:1] * 2)


class ReadsWholeSlices(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x[:]
        return y[0] * 1.1 + x[0].sin() + y[0].cos() + x[:, 1:][0].sum() + y.unsqueeze(0)[0, 1]


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_gradients_of_a_slice_of_all_are_added_before_those_of_the_whole(strategy: str) -> None:
    module = ReadsWholeSlices()
    lowered = lowered_copy(module, strategy)
    for seed in range(20):
        gradients = []
        for each in (module, lowered):
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed), requires_grad=True)
            (each(x) * torch.arange(1.0, 4.0)).sum().backward()
            gradients.append(x.grad)
        assert_same(gradients[1:], gradients[:1])


class NormalizedResidual(nn.Module):
    """The residual of a Llama: the norm squares and multiplies what the sum reads as well."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(16)
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        return h + self.inner(self.norm(h))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_parts_of_a_norm_read_its_input_as_in_eager(dtype: torch.dtype, strategy: str) -> None:
    torch.manual_seed(0)
    module = NormalizedResidual().to(dtype)
    lowered = lowered_copy(module, strategy)
    x = torch.randn(5, 16).to(dtype)
    for with_autocast in (False, True, False):
        gradients = []
        for each in (module, lowered, lowered):
            each.zero_grad()
            own = x.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=with_autocast):
                result = each(own)
            (result * torch.arange(16)).sum().backward()
            gradients.append([own.grad, *(p.grad for p in each.parameters())])
        for ours in gradients[1:]:
            assert_same(ours, gradients[0])
