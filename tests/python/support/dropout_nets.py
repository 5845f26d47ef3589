"""A network with dropout, and steps of it that are compared with eager PyTorch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from support.helpers import assert_same


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.dropout(torch.tanh(self.linear(self.norm(x))), 0.1, self.training)


class Net(nn.Module):
    """Has a loop over layers, a method that calls another, and an argument with a default."""

    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = nn.Linear(width, 4)

    def features(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.head(self.features(x)) * scale


def layers_of(scripted: torch.jit.ScriptModule) -> list[torch.jit.ScriptModule]:
    """Returns the scripted layers; what indexing the list returns is those of the eager module."""
    return list(scripted.layers.children())


def step(run: Callable[..., Tensor], module: nn.Module, x: Tensor, seed: int = 0) -> list[Tensor]:
    """Returns the output and all gradients of a step with dropout."""
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    torch.manual_seed(seed)
    output = run(x)
    output.square().sum().backward()
    assert x.grad is not None
    return [output.detach(), x.grad, *(p.grad for p in module.parameters() if p.grad is not None)]


def assert_trains_as(module: nn.Module, eager: nn.Module, calls: int = 4) -> None:
    """Compares steps with inputs of two sizes. TorchScript optimizes a method in its third call."""
    for call in range(calls):
        x = torch.randn(200 + call % 2, 32)
        assert_same(step(module, module, x, call), step(eager, eager, x, call))
