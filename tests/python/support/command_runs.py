"""What tests of the command ``aten-recompute`` share: a module, and what a run left."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .nets import Residual

WIDTH = 64
INPUT = f"float32[1024,{WIDTH}]"
SUBCOMMANDS = ["estimate", "plan", "lower", "inspect", "profile", "check", "bench", "diff", "draw"]


class Loss(nn.Module):
    """The residual network with a scalar result, whose step recomputation makes smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Residual(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).sum()


class Large(nn.Module):
    """Has parameters of 256 MiB, for what must allocate nothing of the size of a module or its step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2048, 2048) for _ in range(16)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.sum()


class Result:
    """What a run of the command left."""

    def __init__(self, completed: "subprocess.CompletedProcess[str]") -> None:
        self.status = completed.returncode
        self.out = completed.stdout
        self.error = completed.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def fails(self, status: int, *parts: str) -> None:
        """Checks the exit status, and that stderr is one line with these parts."""
        assert self.status == status, self.error
        assert self.error.startswith("aten-recompute: ")
        assert self.error.count("\n") == 1
        assert self.error.endswith("\n")
        for part in parts:
            assert part in self.error


Command = Callable[..., Result]
