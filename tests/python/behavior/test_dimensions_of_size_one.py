"""Results have eager PyTorch's strides in dimensions of size 1, too: the layout of what follows depends on them."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from support.helpers import assert_same, lowered_copy


class Pooled(nn.Module):
    """The image-level branch of a segmentation head, in channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.project = nn.Conv2d(16, 24, 1)
        self.head = nn.Conv2d(24, 8, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pooled = self.operate(self.project(self.pool(x)))
        spread = F.interpolate(pooled, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(spread), pooled

    def operate(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class PooledRelu(Pooled):
    def operate(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class PooledNumbers(Pooled):
    def operate(self, x: Tensor) -> Tensor:
        return (x * 0.5 + 1.0) / 3.0


class PooledMasked(Pooled):
    def operate(self, x: Tensor) -> Tensor:
        return torch.sigmoid(-x).masked_fill(x > 0.5, 0.25)


class PooledSums(Pooled):
    def operate(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x) * torch.tanh(x) + F.gelu(x).softmax(1)


@pytest.mark.parametrize("model", [PooledRelu, PooledNumbers, PooledMasked, PooledSums])
@pytest.mark.parametrize("batch", [1, 4])
def test_channels_last_of_one_pixel(model: type[Pooled], batch: int) -> None:
    torch.manual_seed(0)
    eager = model()
    lowered = lowered_copy(eager, "none")
    x = torch.randn(batch, 16, 9, 9).to(memory_format=torch.channels_last)
    results = []
    for module in (eager, lowered):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        outputs = module(leaf)
        sum(output.square().sum() for output in outputs).backward()
        results.append([*outputs, leaf.grad, *(parameter.grad for parameter in module.parameters())])
        module.zero_grad()
    assert [each.stride() for each in results[0]] == [each.stride() for each in results[1]]
    assert_same(results[1], results[0])
