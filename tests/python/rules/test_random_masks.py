"""Masks of dropouts: the numbers of eager PyTorch in every state of the generator, and the same state after them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import aten_recompute

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


class Dropouts(nn.Module):
    """Several draws of different sizes, one of them over channels."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(x * self.scale, self.p, self.training)
        x = F.dropout2d(x, self.p, self.training)
        x = F.dropout(torch.tanh(x)[:, :, 1:], 0.3, self.training)
        return F.alpha_dropout(x * x, self.p, self.training)


def step(module: nn.Module, x: torch.Tensor, words: int) -> list[torch.Tensor]:
    """Draws from a generator of which `words` words have been used. Returns the result, gradients and its state."""
    torch.manual_seed(7)
    for _ in range(words):  # a number below 2 ** 32 takes one word
        torch.randint(2**31, ())
    x = x.detach().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.sum().backward()
    gradients = [g for g in (x.grad, *(p.grad for p in module.parameters())) if g is not None]
    assert len(gradients) == 2
    return [y.detach(), *gradients, torch.get_rng_state(), torch.rand(3)]


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 1 / 3, 0.0, 1.0])
def test_numbers_and_state_are_those_of_eager(p: float, dtype: torch.dtype, strategy: str) -> None:
    module = Dropouts(p).to(dtype)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), strategy)
    # Fewer elements than one vector of bytes, one block of the generator, and several.
    for size, words in [((1, 2, 3, 1), 0), ((3, 5, 4, 6), 1), ((2, 7, 5, 9), 623), ((4, 8, 9, 13), 624)]:
        x = torch.randn(size, dtype=dtype)
        for image in (x, x.contiguous(memory_format=torch.channels_last)):
            for ours, eager in zip(step(lowered, image, words), step(module, image, words), strict=True):
                assert torch.equal(ours, eager)


def test_a_mask_larger_than_a_share_of_a_thread() -> None:
    module = Dropouts(0.2)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), "none")
    x = torch.randn(8, 16, 40, 41)
    for ours, eager in zip(step(lowered, x, 5), step(module, x, 5), strict=True):
        assert torch.equal(ours, eager)
