"""An in-place operator keeps the type of what it writes to, whose gradient eager PyTorch computes with."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy
from support.sources import run_source

# Each writes to `y` and reads `s`, which has a higher type.
WRITES = {
    "mul": "y *= s",
    "add": "y += s",
    "sub": "y.sub_(s, alpha=0.3)",
    "div": "y /= s",
    "pow": "y.pow_(s)",
    "atan2": "y.atan2_(s)",
    "hypot": "y.hypot_(s)",
    "xlogy": "y.xlogy_(s)",
    "copy": "y.copy_(s)",
    "part": "y[:, 1:].mul_(s)",
    "several": "y.mul_(s).add_(s).sub_(s * 0.1)",
    "read later": "y *= s; y = y.sin()",
}

MODULE = """
class WritesHigherType(nn.Module):
    def __init__(self, written: torch.dtype, other: torch.dtype) -> None:
        super().__init__()
        self.written = written
        self.scale = nn.Parameter(torch.linspace(0.6, 1.4, 8, dtype=other))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.abs(x * 2).to(self.written) + 0.1
        s = self.scale
        {write}
        return y
"""


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("types", [(torch.bfloat16, torch.float32), (torch.float32, torch.float64)], ids=str)
@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("kind", WRITES)
def test_gradients_have_eagers_bits(
    kind: str, strategy: str, types: tuple[torch.dtype, torch.dtype], create_graph: bool
) -> None:
    names: dict[str, Any] = {"__name__": __name__, "torch": torch, "nn": nn, "Tensor": Tensor}
    run_source(MODULE.format(write=WRITES[kind]), f"<writes by {kind}>", names)
    module = names["WritesHigherType"](*types)
    lowered = lowered_copy(module, strategy)
    for rows in (5, 3):
        x = torch.randn(rows, 3, 8, generator=torch.Generator().manual_seed(rows))
        gradients = []
        for each in (module, lowered, lowered):
            own = x.clone().requires_grad_()
            result = each(own)
            weights = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view(result.shape)
            found = torch.autograd.grad(
                (result * weights).sum(), [own, each.scale], create_graph=create_graph, materialize_grads=True
            )
            gradients.append([result.detach(), *(gradient.detach() for gradient in found)])
        for ours in gradients[1:]:
            assert_same(ours, gradients[0])


class ScalesUnderAutocast(nn.Module):
    """Open-Unmix scales the result of its last layer in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 8))
        self.mean = nn.Parameter(torch.linspace(-1, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        y *= self.scale
        y += self.mean
        return torch.relu(y) * x


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_operands_of_a_result_of_autocast_have_eagers_gradients(strategy: str) -> None:
    torch.manual_seed(0)
    module = ScalesUnderAutocast()
    lowered = lowered_copy(module, strategy)
    x = torch.randn(5, 8)
    for with_autocast in (True, False, True):
        gradients = []
        for each in (module, lowered, lowered):
            each.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=with_autocast):
                result = each(x)
            result.sum().backward()
            gradients.append([result.detach(), *(p.grad for p in each.parameters())])
        for ours in gradients[1:]:
            assert_same(ours, gradients[0])
