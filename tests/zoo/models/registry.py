"""What a model of the zoo is. The packages of the models are imported when a model is made."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = tuple[Any, ...]
Make = Callable[[], nn.Module]


@dataclass(frozen=True)
class Model:
    name: str
    make: Make
    inputs: Callable[[], Inputs]
    package: str = "torch"
    traced: bool = False
    # Turns the module into TorchScript, where the authors do not use torch.jit.script itself.
    script: Callable[[nn.Module], torch.jit.ScriptModule] | None = None

    def fresh(self) -> nn.Module:
        """Makes the module with the same weights each time."""
        torch.manual_seed(0)
        return self.make()

    def program(self) -> torch.jit.ScriptModule:
        module = self.fresh()
        if not self.traced:
            script: Any = self.script or torch.jit.script
            program: torch.jit.ScriptModule = script(module)
            return program
        torch.manual_seed(1)
        state = copy.deepcopy(module.state_dict())  # tracing runs the module, which changes buffers
        traced: torch.jit.ScriptModule = trace(module, self.inputs(), check_trace=False)
        traced.load_state_dict(state, strict=False)  # it has only what it reads
        return traced


trace: Any = torch.jit.trace

MODELS: dict[str, Model] = {}


def model(name: str, inputs: Callable[[], Inputs], package: str = "torch", **options: Any) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        MODELS[name] = Model(name, make, inputs, package, **options)
        return make

    return add


def sequence(*sizes: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(*sizes),)
