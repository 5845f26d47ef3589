"""PyTorch's own attention layers are one region in spite of their many branches, and train as in eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy, num_regions


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, kdim=16, vdim=16)

    def forward(self, x: Tensor) -> Tensor:
        memory = x.tanh()
        result, weights = self.inner(x, memory, memory)
        assert weights is not None
        return result + weights.sum()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x.sin())


class WholeTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Transformer(16, 4, 2, 2, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x.cos())


def encoder(layers: int, **options: Any) -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, **options), layers)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "self_attention": SelfAttention,
    "cross_attention": CrossAttention,
    "encoder_layer": lambda: nn.TransformerEncoderLayer(16, 4, 32),
    "encoder": lambda: encoder(3),
    "encoder_batch_first": lambda: encoder(3, batch_first=True),
    "encoder_norm_first": lambda: encoder(2, norm_first=True),
    "decoder": Decoder,
    "transformer": WholeTransformer,
}


@pytest.mark.parametrize("strategy", ["none", "segments"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_layer_is_one_region_and_equals_eager(name: str, strategy: str) -> None:
    eager = LAYERS[name]()
    lowered = lowered_copy(eager, strategy, fullgraph=True)
    values = torch.randn(5, 3, 16)
    for seed in (1, 2):
        results = []
        for module in (eager, lowered):
            module.zero_grad(set_to_none=True)
            torch.manual_seed(seed)
            x = values.clone().requires_grad_()
            y = module(x)
            y.square().sum().backward()
            results.append([y.detach(), x.grad] + [p.grad for p in module.parameters()])
        assert_same(results[1], results[0])


def test_evaluation_equals_eager_with_and_without_gradients() -> None:
    """Eager uses a fused kernel without gradients, but not with gradients, in evaluation mode or not."""
    eager = encoder(2, batch_first=True)
    lowered = lowered_copy(eager, "none")
    x = torch.randn(2, 5, 16)
    lowered(x).sum().backward()
    for module in (eager, lowered):
        module.eval()
        module.zero_grad(set_to_none=True)
    with torch.no_grad():
        assert torch.equal(lowered(x), eager(x))
    for module in (eager, lowered):
        module(x).square().sum().backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


class AsksForTheRank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.nn.functional.linear(torch.relu(x), self.weight)
        if y.dim() == 3:
            y = y.tanh()
        return y


def test_a_weight_of_another_rank_is_compiled_again() -> None:
    """linear() accepts a vector as a weight; its result then has one dimension less."""
    lowered = lowered_copy(AsksForTheRank(), "none")
    x = torch.randn(2, 3, 4)
    matrix = lowered.weight.detach().clone()
    assert torch.equal(lowered(x), torch.tanh(torch.relu(x) @ matrix.t()))
    assert num_regions(lowered) == [1]
    with torch.no_grad():
        lowered.weight.set_(torch.randn(4))
    expected = torch.nn.functional.linear(torch.relu(x), lowered.weight)
    assert expected.dim() == 2
    assert torch.equal(lowered(x), expected)


class SetsItsWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.weight = self.weight.flatten()[:4]
        y = torch.nn.functional.linear(torch.relu(x), self.weight)
        if y.dim() == 3:
            y = y.tanh()
        return y


def test_a_method_may_set_a_weight_of_another_rank() -> None:
    eager = SetsItsWeight()
    lowered = lowered_copy(eager, "none")
    x = torch.randn(2, 3, 4)
    for _ in range(2):
        assert torch.equal(lowered(x), eager(x))
