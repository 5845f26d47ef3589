"""An operator that reads one tensor twice gives it two gradients, which are added in eager PyTorch's order."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from support.helpers import assert_same, lowered_copy
from support.sources import run_source


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


class SharedAttention(nn.Module):
    """Attention of two heads whose query, key and value are one, two or three of three projections."""

    def __init__(self, read: str, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 32) for _ in range(3))
        self.query, self.key, self.value = (int(each) for each in read)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        heads: list[Tensor] = []
        for layer in self.layers:
            heads.append(layer(x).view(1, -1, 2, 16).transpose(1, 2))
        q, k, v = heads[self.query], heads[self.key], heads[self.value]
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
        return mixed.sin().sum() + torch.exp(v * 0.3).sum() + (q * k).sum()


# With dropout no fused kernel runs on a CPU.
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("read", ["012", "011", "001", "010", "000"])
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_attention_that_reads_one_tensor_twice_has_eagers_bits(read: str, dropout: float, strategy: str) -> None:
    torch.manual_seed(0)
    module = SharedAttention(read, dropout)
    lowered = lowered_copy(module, strategy)
    for rows in (17, 40):
        x = torch.randn(rows, 8)
        gradients = []
        for each in (module, lowered, lowered):
            each.zero_grad()
            own = x.clone().requires_grad_()
            torch.manual_seed(1)
            each(own).backward()
            gradients.append([own.grad, *(p.grad for p in each.parameters())])
        for ours in gradients[1:]:
            assert_same(ours, gradients[0])


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


# What ATen composes of several operators, which read `h`.
COMPOSED = {
    "cosine_similarity": "F.cosine_similarity(h, w, dim=1)",
    "cosine_similarity of all pairs": "F.cosine_similarity(h.unsqueeze(1), w.unsqueeze(0), dim=-1)",
    "cosine_similarity with one": "F.cosine_similarity(h, w[:1], dim=1) + F.cosine_similarity(w[:1], h, dim=1)",
    "cosine_similarity with itself": "F.cosine_similarity(h, h, dim=0)",
    "cosine_embedding_loss": "F.cosine_embedding_loss(h, w, torch.sign(w[:, 0]), 0.1)",
    "cosine_embedding_loss of each": "F.cosine_embedding_loss(h, h * w, torch.sign(w[:, 0]), reduction='none')",
    "triplet_margin_loss": "F.triplet_margin_loss(h, w, w.flip(0), swap=True)",
    "triplet_margin_loss of each": "F.triplet_margin_loss(h, w, h.flip(0), p=1.5, reduction='none')",
    "poisson_nll_loss": "F.poisson_nll_loss(h, w.abs(), full=True)",
    "poisson_nll_loss of a rate": "F.poisson_nll_loss(h + 1, w.abs(), log_input=False, reduction='sum')",
    "diff": "torch.diff(h)",
    "third diff": "torch.diff(h, n=3, dim=0)",
    "diff with more": "torch.diff(h, dim=1, prepend=w[:, :1], append=h[:, :2])",
}

BESIDE_ANOTHER = """
class BesideAnother(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        h = torch.sin(x)
        z = {expression}
        return torch.sin(torch.exp(h) * 0.37).sum() + torch.cos(z).sum() + h.cos().sum()
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("kind", COMPOSED)
def test_parts_of_a_composed_operator_read_its_operand(kind: str, strategy: str, dtype: torch.dtype) -> None:
    names: dict[str, Any] = {"__name__": __name__, "torch": torch, "nn": nn, "F": F, "Tensor": Tensor}
    run_source(BESIDE_ANOTHER.format(expression=COMPOSED[kind]), f"<beside {kind}>", names)
    torch.manual_seed(0)
    module = names["BesideAnother"]()
    lowered = lowered_copy(module, strategy)
    for rows in (6, 9, 4):
        x, w = torch.randn(rows, 8, dtype=dtype), torch.randn(rows, 8, dtype=dtype)
        for with_autocast in (False, True):
            gradients = []
            for each in (module, lowered, lowered):
                own = [x.clone().requires_grad_(), w.clone().requires_grad_()]
                with torch.autocast("cpu", torch.bfloat16, enabled=with_autocast):
                    result = each(*own)
                result.backward()
                gradients.append([result.detach(), *(tensor.grad for tensor in own)])
            for ours in gradients[1:]:
                assert_same(ours, gradients[0])


class LossOfMatrices(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "cosine_embedding_loss":
            return torch.cosine_embedding_loss(x, x.sin(), torch.ones(6))
        return torch.triplet_margin_loss(x, x.sin(), x.flatten()[:8].unsqueeze(0))


@pytest.mark.parametrize("kind", ["cosine_embedding_loss", "triplet_margin_loss"])
def test_composed_losses_refuse_what_eager_refuses(kind: str) -> None:
    module = LossOfMatrices(kind)
    lowered = lowered_copy(module, "all")
    matrix, more = torch.randn(6, 8, requires_grad=True), torch.randn(2, 6, 8, requires_grad=True)
    lowered(matrix).backward()
    with pytest.raises(RuntimeError) as eager:
        module(more)
    with pytest.raises(RuntimeError) as ours:
        lowered(more)
    assert str(eager.value).splitlines()[0] in str(ours.value)


class Returned(nn.Module):
    """Returns what it also reads in another order of the dimensions. Its own gradient is a sum over the last one."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        q = x.exp().unsqueeze(-1) * a
        if self.kind == "einsum":
            e = torch.einsum("nmg,nmg->ng", a.sin(), q)
        elif self.kind == "bmm":
            e = torch.bmm(q.transpose(1, 2), a.sin())
        else:
            e = q.transpose(1, 2).contiguous()
        return q, e.sin().sum()


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("kind", ["einsum", "bmm", "contiguous"])
def test_a_sum_of_gradients_lies_in_memory_as_in_eager(kind: str, strategy: str) -> None:
    found = []
    for module in (Returned(kind), lowered_copy(Returned(kind), strategy)):
        torch.manual_seed(0)
        x, a = torch.randn(6, 33, requires_grad=True), torch.randn(6, 33, 8)
        for _ in range(3):
            q, e = module(x, a)
            torch.autograd.backward([q, e], [torch.linspace(-1, 1, q.numel()).view_as(q), torch.tensor(0.5)])
        found.append([x.grad])
    assert_same(found[1], found[0])
