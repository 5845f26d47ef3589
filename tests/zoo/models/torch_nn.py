"""Models of torch.nn."""

import torch
from torch import Tensor, nn

from .registry import model, sequence


def padding_mask(batch: int, length: int) -> Tensor:
    return torch.arange(length).expand(batch, length) > length - 3


@model("transformer_encoder_mask", lambda: (torch.randn(8, 32, 64), None, padding_mask(8, 32)))
def transformer_encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True), 3)


@model("transformer_decoder", lambda: (torch.randn(8, 32, 64), torch.randn(8, 24, 64)))
def transformer_decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(64, 4, 128, 0.1, batch_first=True), 2)


class CellsOverTime(nn.Module):
    """Two cells over time, with a branch on the place in the sequence."""

    def __init__(self, cell: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.first, self.second = cell(64, 64), cell(64, 64)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.zeros(x.size(1), 64), torch.zeros(x.size(1), 64)
        states: list[Tensor] = []
        for t in range(x.size(0)):
            a = self.first(x[t], a)
            if t % 2 == 0:
                b = self.second(a, b)
            states.append(b)
        return torch.stack(states)


@model("gru_cells", sequence(12, 64, 64))
def gru_cells() -> nn.Module:
    return CellsOverTime(nn.GRUCell)


@model("rnn_cells", sequence(12, 64, 64))
def rnn_cells() -> nn.Module:
    return CellsOverTime(nn.RNNCell)
