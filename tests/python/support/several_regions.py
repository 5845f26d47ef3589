"""Methods that graph breaks divide into regions, and functions to train them under a budget and to read its plans."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute._report_types import MethodPlan, Variant
from benchmarks.memory import Tracker
from support.helpers import lowered_copy

# The loss outside of the method consists of scalars.
OUTSIDE_BYTES = 16


class Mlp(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(torch.sigmoid(layer(x)))
        return x


class Broken(nn.Module):
    """Has a branch on data in the middle, hence a region before it, one in each branch, and one after it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 4)
        self.b = Mlp(width, 1)
        self.c = Mlp(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        if bool(x.sum() > 0):
            x = self.b(x)
        else:
            x = torch.cos(x)
        return self.c(x).sum()


class Printing(nn.Module):
    """Has a break that uses no value, and a value that is read on both sides of it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 3)
        self.b = Mlp(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        z = self.b(y)
        print("between")
        return (self.b(z) * y).sum()


class Looping(nn.Module):
    """Runs one region several times in a loop."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 3)
        self.times = 3

    def forward(self, x: Tensor) -> Tensor:
        i = 0
        while i < self.times and bool(x.sum() < 1e9):
            x = self.a(x)
            i += 1
        return x.sum()


class Viewing(nn.Module):
    """A view and a value that is made between the regions pass the break."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 4)
        self.b = Mlp(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x) * 2.0
        seen: list[Tensor] = []
        if bool(h.sum() > 1e9):
            seen.append(h)
        h = h.view(-1, h.size(1))
        h[0] = 0.0
        return self.b(h).sum() + float(len(seen))


NETS = [Broken, Printing, Looping, Viewing]


def with_budget(net: nn.Module, **options: Any) -> torch.jit.ScriptModule:
    return lowered_copy(net, "budget", cost_model="flops", **options)


def step(module: nn.Module, x: Tensor) -> Tensor:
    module.zero_grad(set_to_none=True)
    loss = module(x)
    loss.backward()
    return loss.detach()


def peak_bytes(module: nn.Module, x: Tensor, tracker: Tracker, accumulate: bool = False) -> int:
    """Returns the peak of the second step with these inputs, above the memory in use before it."""
    step(module, x)
    if not accumulate:
        module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        module(x).backward()
    return peak.bytes


def plans(lowered: torch.jit.ScriptModule) -> list[MethodPlan]:
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    return specialization["plans"]


def rows(count: int = 2048, width: int = 16) -> Tensor:
    return torch.randn(count, width)


def variants(lowered: torch.jit.ScriptModule) -> list[Variant]:
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    return [variant for region in specialization["regions"] for variant in region["variants"]]


def unplanned_peak(make: Callable[[], nn.Module], x: Tensor, tracker: Tracker) -> int:
    return peak_bytes(lowered_copy(make(), "none"), x, tracker)
