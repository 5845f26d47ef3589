"""Small modules that several test files lower."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class Residual(nn.Module):
    """Four residual blocks, which are its layers."""

    def __init__(self, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = nn.Linear(width, width)
        self.blocks = nn.ModuleList([Block(width, dropout) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x


class TwoOutputs(nn.Module):
    """Two outputs with a common part; each has parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.common = nn.Linear(6, 6)
        self.left = nn.Linear(6, 3)
        self.right = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.common(x))
        return self.left(h), self.right(h)


class ConvNet(nn.Module):
    """A network with batch norm, ReLU in place, dropout and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean(dim=[2, 3]))


class Tied(nn.Module):
    """A network that uses one weight at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.inner = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        h = torch.relu(self.inner(self.embedding(tokens)))
        return F.linear(h, self.embedding.weight)


class Containers(nn.Module):
    """Takes and returns dicts, lists, tuples and optional values, and has a default argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(
        self,
        batch: dict[str, Tensor],
        extras: list[Tensor],
        bias: Tensor | None = None,
        scale: float = 2.0,
    ) -> tuple[dict[str, Tensor], list[Tensor], Tensor | None]:
        h = torch.tanh(self.linear(batch["x"])) * scale
        if bias is not None:
            h = h + bias
        outputs: list[Tensor] = []
        for extra in extras:
            outputs.append(h * extra)
        last: Tensor | None = None
        if len(extras) > 1:
            last = h.sum()
        return {"h": h, "twice": h + h}, outputs, last


class TwoMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 3)
        self.decoder = nn.Linear(3, 5)

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return torch.tanh(self.encoder(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encode(x))


class Tanh(nn.Module):
    """Two linear layers, small enough for second derivatives; tests derive their own methods from it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Net(nn.Module):
    """Two layers, with a second method beside ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(torch.sigmoid(self.first(x)))).sum()

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return torch.relu(self.first(x))
