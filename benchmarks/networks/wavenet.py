"""A WaveNet, which predicts the next sample of a sound."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GatedLayer(nn.Module):
    """A dilated causal convolution with gates, a residual and a result that is skipped to the end."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.gates = nn.Conv1d(width, 2 * width, kernel_size=2, dilation=dilation)
        self.mix = nn.Conv1d(width, 2 * width, kernel_size=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Maps (batch, width, samples) to the residual stream and what is skipped, of the same size."""
        a, b = self.gates(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
        residual, skipped = self.mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, dim=1)
        return x + residual, skipped


class WaveNet(nn.Module):
    """Sounds (batch, samples) with values in [-1, 1] to the mean squared error of the prediction of each sample."""

    def __init__(self, layers: int = 20, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, kernel_size=1)
        self.layers = nn.ModuleList([GatedLayer(width, 2 ** (index % 10)) for index in range(layers)])
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 1, 1))

    def forward(self, sound: Tensor) -> Tensor:
        x = self.first(sound[:, :-1].unsqueeze(1))
        total = torch.zeros_like(x)
        for layer in self.layers:
            x, skipped = layer(x)
            total = total + skipped
        return F.mse_loss(self.last(total).squeeze(1), sound[:, 1:])
