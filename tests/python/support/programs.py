"""Modules as people write them: with library layers, control flow, state, random numbers and views.

Each entry of PROGRAMS is a factory and the shape of its only input. test_programs.py trains them, eager and lowered.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """nn.MultiheadAttention branches on `key is value`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.1)
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.attention(x, x, x, need_weights=False)[0])


class LibraryTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Transformer(16, 4, 2, 2, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(16, 8, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class UNet(nn.Module):
    """A skip connection over a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.down = nn.Conv2d(8, 16, 3, 2, 1)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.leave = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.silu(self.norm(self.enter(x)))
        b = self.up(F.relu(self.down(a)))
        return F.interpolate(self.leave(torch.cat([a, b], 1)), scale_factor=2.0, mode="nearest")


class FusedAttention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(x.size(0), x.size(1), 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


class SliceAssignment(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(7, 5))

    def forward(self, x: Tensor) -> Tensor:
        y = x[:, :5] @ self.weight.t()
        z = y.clone()
        z[:, 0] = 1.5
        z[:, 1:3] = y[:, 2:4] * 2
        z[z < 0] = 0.0
        order = torch.argsort(y, dim=1)
        return torch.gather(z, 1, order).cumsum(0) + y.max(dim=1, keepdim=True)[0]


class NoGradInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.a(x))
        with torch.no_grad():
            target = torch.sigmoid(self.b(h)) * 2
        return self.b(h) * target + h.detach() * self.a(h)


class MovingAverage(nn.Module):
    """The method changes a buffer and a number, and reads them afterward."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.register_buffer("average", torch.zeros(8))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.a(x))
        if self.training:
            self.average.mul_(0.9).add_(h.detach().mean(0) * 0.1)
            self.calls += 1
        return h * self.average + self.calls


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class ReturnsNamedTuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Pair:
        h = self.a(x)
        return Pair(torch.relu(h), h)


class LoopsOnData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        i = 0
        while float(x.norm()) < 50.0 and i < 5:
            x = x + torch.tanh(self.a(x)) * 3
            i += 1
        return x


class ReturnsItsInput(nn.Module):
    """Returns the input, a view of it, and a parameter, among others."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return x, self.a(x), x.view(-1), self.a.weight


class DrawsRandomNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h = h + torch.randn_like(h) * 0.1
        h = F.dropout(h, 0.3)
        h = F.alpha_dropout(h, 0.2, self.training)
        h = F.rrelu(h, training=self.training) * torch.rand(8)
        return h * torch.bernoulli(torch.sigmoid(h))


class ComplexNumbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        f = torch.fft.rfft(self.a(x))
        return (f * f.conj()).real.sum() + torch.view_as_real(f).std()


class StateOnTape(nn.Module):
    """Instance norm updates running statistics and has no rule, so it must not run twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(20, 8)
        self.recur = nn.GRU(8, 8, batch_first=True)
        self.norm = nn.InstanceNorm1d(8, affine=True, track_running_stats=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed((x * 10).abs().long() % 20).unsqueeze(1)
        h = self.recur(h)[0]
        return self.norm(h.transpose(1, 2).expand(-1, -1, 4))


class ListsOfTensors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(8)) for _ in range(3)])
        self.a = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.a(x).chunk(3, -1)
        parts = [a, b * c, torch.sigmoid(c)]
        total = torch.stack(parts).sum(0)
        ends = torch.cat([parts[0], parts[2]], 1)
        return total.sum() + ends.mean() + parts[1].max()


class ListsThatChange(nn.Module):
    """Each layer reads all that a list holds so far; the results of in-place activations are put into lists."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8 * (i + 1), 8) for i in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(F.relu(layer(torch.cat(features, 1)), inplace=True))
        last = features.pop()
        features += [last * 2, x]
        features[0] = torch.sigmoid_(last + 1)
        features.insert(1, last)
        return torch.cat(features, 1)


class GatesInPlace(nn.Module):
    """Writes to parts of a tensor that are no views for autograd, as nn.GRUCell does."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        gate, value, rest = torch.unsafe_chunk(self.a(x), 3, -1)
        gate = gate.sigmoid_()
        return gate * value.tanh_() + rest


class ReadsTwice(nn.Module):
    """One value has three gradients, two of them from one operator; their sum depends on the order."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        v = self.a(x)
        w = torch.relu(v @ v) + v * 0.3
        return w * w + torch.sin(w) - w / (w + 9.0)


class ReturnsItsArgument(nn.Module):
    """Operators that have nothing to do return their argument, so the gradients of both names are one sum."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        v = self.a(x)
        same = v.to(torch.float32).contiguous().type_as(x).flatten(1)
        return torch.sin(v / 3.0) - v * v + torch.tanh(same) / (same.abs() + 3.0)


class ListAcrossABreak(nn.Module):
    """A list whose elements are no views, read after the end of a region."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 24)
        self.last = 0.0

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.unsafe_chunk(self.a(x), 3, -1)
        self.last = float(x.sum())
        return parts[0] * parts[1] + self.last


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], list[int]]] = {
    "self_attention": (SelfAttention, [2, 5, 16]),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), [2, 5, 16]),
    "library_transformer": (LibraryTransformer, [2, 5, 16]),
    "recurrent": (Recurrent, [2, 5, 16]),
    "unet": (UNet, [2, 3, 8, 8]),
    "fused_attention": (FusedAttention, [2, 5, 16]),
    "fused_attention_dropout": (lambda: FusedAttention(0.2), [2, 5, 16]),
    "slice_assignment": (SliceAssignment, [6, 9]),
    "no_grad_inside": (NoGradInside, [4, 8]),
    "moving_average": (MovingAverage, [4, 8]),
    "named_tuple": (ReturnsNamedTuple, [4, 8]),
    "loops_on_data": (LoopsOnData, [4, 8]),
    "returns_its_input": (ReturnsItsInput, [4, 8]),
    "draws_random_numbers": (DrawsRandomNumbers, [4, 8]),
    "complex_numbers": (ComplexNumbers, [4, 8]),
    "state_on_tape": (StateOnTape, [4, 8]),
    "lists_of_tensors": (ListsOfTensors, [4, 8]),
    "lists_that_change": (ListsThatChange, [4, 8]),
    "gates_in_place": (GatesInPlace, [4, 8]),
    "reads_twice": (ReadsTwice, [8, 8]),
    "returns_its_argument": (ReturnsItsArgument, [4, 8]),
    "list_across_a_break": (ListAcrossABreak, [4, 8]),
}
