"""A language model whose feed-forward networks are mixtures of experts."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Experts(nn.Module):
    """Sends each row to one of `experts` networks, that with the largest weight, as in the Switch Transformer."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps rows (count, width) to rows of the same size."""
        weight, chosen = F.softmax(self.router(x), dim=-1).max(dim=-1)
        y = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == index).squeeze(1)
            y = y.index_add(0, rows, expert(x[rows]) * weight[rows].unsqueeze(1))
        return y


class Mixture(nn.Module):
    """`layers` pre-norm mixtures: rows (count, width) to the mean of squares of the last layer's results."""

    def __init__(self, layers: int = 6, width: int = 256, experts: int = 8) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(layers)])
        self.layers = nn.ModuleList([Experts(width, experts) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        return x.square().mean()
