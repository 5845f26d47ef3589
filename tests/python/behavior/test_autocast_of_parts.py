"""Under autocast, operators that ATen composes of others, some of which autocast casts, are as in eager PyTorch."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from support.helpers import num_compiled
from support.sources import run_source

# Functions of a bfloat16 tensor `y` and a float32 tensor `z`, both (8, 32), of classes `t`, and of parameters.
FUNCTIONS = {
    "nll_loss": "F.nll_loss(y, t)",
    "nll_loss of logarithms": "F.nll_loss(torch.log_softmax(y, 1), t)",
    "weighted nll_loss": "F.nll_loss(y, t, self.weight.detach())",
    "nll_loss of each": "F.nll_loss(y, t, reduction='none')",
    "nll_loss of images": "F.nll_loss(y.view(2, 16, 4, 2), t.view(2, 4, 1).expand(2, 4, 2) % 16)",
    "smooth cross_entropy": "F.cross_entropy(y, t, label_smoothing=0.1)",
    "cross_entropy of probabilities": "F.cross_entropy(y, torch.softmax(z, 1))",
    "hstack": "torch.hstack([y, z])",
    "vstack": "torch.vstack([z, y])",
    "concatenate": "torch.concatenate([z, y], 0)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(y.view(1, 8, 4, 8), [2, 2])",
    "reflection": "F.pad(y.view(1, 8, 4, 8), [1, 1, 1, 1], 'reflect')",
    "replication": "F.pad(y.view(1, 2, 4, 4, 8), [1, 1, 1, 1, 1, 1], 'replicate')",
    "interpolation": "F.interpolate(y.view(1, 8, 4, 8), scale_factor=2.0, mode='bilinear')",
    "batch_norm": "F.batch_norm(y, None, None, None, None, True)",
    "instance_norm": "F.instance_norm(y.view(1, 8, 32))",
    "rms_norm": "F.rms_norm(y, [32])",
    "padded convolution": "F.conv2d(z.view(1, 8, 4, 8), self.kernel, padding='same')",
    "kl_div": "F.kl_div(torch.log_softmax(y, 1), torch.softmax(z, 1), reduction='batchmean')",
    "triplet": "F.triplet_margin_loss(y, z, z * 2)",
    "attention of strided heads": "torch.einsum('bhij,bhjd->bhid', torch.softmax(z.view(2, 2, 8, 8), -1), "
    "z.view(2, 8, 2, 8).transpose(1, 2))",
    "attention of strided bfloat16 heads": "torch.einsum('bhij,bhjd->bhid', torch.softmax(z.view(2, 2, 8, 8), -1), "
    "y.view(2, 8, 2, 8).transpose(1, 2))",
    "strided scores": "torch.einsum('bihd,bjhd->bhij', z.view(2, 8, 2, 8), y.view(2, 8, 2, 8))",
    "grid_sample": "F.grid_sample(y.view(1, 8, 4, 8), torch.tanh(z.view(1, 16, 8, 2)), align_corners=False)",
}

SOURCE = """
def forward(self, x: Tensor, z: Tensor, t: Tensor):
    y = self.layer(x)
    return {}
"""


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 32)
        self.weight = nn.Parameter(torch.rand(32))
        self.kernel = nn.Parameter(torch.randn(4, 8, 3, 3))


def network(name: str) -> nn.Module:
    names: dict[str, Any] = {"torch": torch, "F": F, "Tensor": Tensor}
    run_source(SOURCE.format(FUNCTIONS[name]), f"<{name}>", names)
    torch.manual_seed(0)
    return type("Network", (Network,), {"forward": names["forward"]})()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_composed_operators_cast_as_in_eager(name: str) -> None:
    eager = network(name)
    script: Any = torch.jit.script
    lowered = aten_recompute.lower(script(copy.deepcopy(eager)), "all")
    for seed in range(2):
        results = []
        for module in (eager, lowered):
            torch.manual_seed(seed)
            x, z, t = torch.randn(8, 16), torch.randn(8, 32, requires_grad=True), torch.randint(32, (8,))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                result = module(x, z, t)
            cotangent = torch.rand(result.shape).to(result.dtype)
            gradients = torch.autograd.grad(result, [z, *module.parameters()], cotangent, allow_unused=True)
            results.append([result.detach(), *gradients])
        for theirs, ours in zip(*results, strict=True):
            assert (theirs is None) == (ours is None)
            if theirs is not None and ours is not None:
                assert theirs.dtype == ours.dtype
                assert torch.equal(theirs, ours)
    assert num_compiled(lowered) == 1
