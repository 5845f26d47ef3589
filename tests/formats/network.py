"""The network that the files of this folder were made of. It never changes: a plan names its operators."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(torch.relu(self.up(self.norm(x)))))


class Network(nn.Module):
    """Blocks with operators that plans choose alternatives for, and a batch norm with buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x).square().mean()


def inputs() -> Tensor:
    """The input of every step: float32 (64, 8)."""
    return torch.arange(64 * 8, dtype=torch.float32).view(64, 8).mul(0.37).sin()
