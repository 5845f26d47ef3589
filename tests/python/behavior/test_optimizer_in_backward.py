"""Optimizers may update each parameter in the backward, as soon as its gradient is complete."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from support.eager_comparison import Case, check, every


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.inner = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(torch.relu(self.inner(self.embedding(tokens))), self.embedding.weight)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 5, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Scaled(nn.Module):
    """Uses a parameter directly and through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight) @ self.weight.t() * self.weight[0]


class Optional(nn.Module):
    """Uses a parameter that may be missing, which TorchScript casts where it is there."""

    weight: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8))
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        y = self.first(x)
        if weight is not None:
            y = y * weight
        y = torch.tanh(y)
        if weight is not None:
            y = self.second(y) * weight
        return y


def floats(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, requires_grad=True)


def tokens() -> Tensor:
    return torch.randint(0, 11, (2, 5))


# Each layer is between two others, so that gradients pass through it.
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), floats(3, 8)),
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), floats(3, 8)
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.Conv1d(3, 2, 3)), floats(2, 2, 9)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 3, 3)), floats(2, 2, 7, 7)),
    "transposed": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(3, 2, 3)), floats(2, 2, 7, 7)),
    "batch_norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)
        ),
        floats(2, 2, 7, 7),
    ),
    "batch_norm_eval": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8)).eval(), floats(4, 8)
    ),
    "layer_norm": (lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.LayerNorm(8)), floats(3, 8)),
    "rms_norm": (lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.RMSNorm(8)), floats(3, 8)),
    "group_norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.GroupNorm(1, 4)), floats(2, 2, 7, 7)
    ),
    "instance_norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Conv2d(4, 2, 3)),
        floats(2, 2, 9, 9),
    ),
    "prelu": (lambda: nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.PReLU(8)), floats(3, 8)),
    "bilinear": (lambda: Pairs(), floats(3, 8)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.LayerNorm(8)), tokens),
    "attention": (lambda: nn.Sequential(nn.Linear(8, 8), Attention(), Attention()), floats(2, 4, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), floats(2, 4, 8)),
    "tied": (Tied, tokens),
    "lstm": (lambda: nn.Sequential(nn.Linear(8, 8), Recurrent()), floats(2, 4, 8)),
    "scaled": (Scaled, floats(3, 8)),
    "optional": (Optional, floats(3, 8)),
}  # fmt: skip


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 4)
        self.pair = nn.Bilinear(4, 4, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.pair(y, torch.tanh(y))


def optimizer_in_backward(make_input: Callable[[], Tensor], clear: bool = True) -> Callable[[nn.Module], Any]:
    """Updates each parameter when its gradient is complete, as torch.distributed.optim and torchtune do."""

    def use(module: Any) -> Any:
        seen: dict[str, list[Tensor]] = {name: [] for name, _ in module.named_parameters()}

        def hook(parameter: Tensor, name: str) -> None:
            gradient = parameter.grad
            assert gradient is not None
            seen[name].append(gradient.clone())
            with torch.no_grad():
                parameter.add_(gradient, alpha=-0.5)
            del gradient
            if clear:
                parameter.grad = None

        handles = [
            p.register_post_accumulate_grad_hook(lambda p, name=name: hook(p, name))
            for name, p in module.named_parameters()
        ]
        x = make_input()
        module(x).square().mean().backward()
        for handle in handles:
            handle.remove()
        return x.grad if x.is_floating_point() else None, seen

    return use


IN_BACKWARD = [
    Case(f"{name}{'' if clear else '_kept'}", make, optimizer_in_backward(make_input, clear))
    for name, (make, make_input) in LAYERS.items() for clear in (True, False)
]  # fmt: skip


@every(IN_BACKWARD)
def test_an_optimizer_in_the_backward_equals_eager(case: Case, strategy: str) -> None:
    check(case, strategy)
