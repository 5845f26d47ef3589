"""What a model of the zoo is. The packages of the models are imported when a model is made."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = tuple[Any, ...]
Make = Callable[[], nn.Module]


def moved(value: Any, device: str) -> Any:
    """Returns a value with the tensors in it on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(each, device) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(each, device) for each in value)
    return value


@dataclass(frozen=True)
class Model:
    name: str
    make: Make
    inputs: Callable[[], Inputs]
    package: str = "torch"
    traced: bool = False
    # Turns the module into TorchScript, where the authors do not use torch.jit.script itself.
    script: Callable[[nn.Module], torch.jit.ScriptModule] | None = None
    device: str = "cpu"

    def fresh(self) -> nn.Module:
        """Makes the module with the same weights each time."""
        torch.manual_seed(0)
        return self.make().to(self.device)

    def batch(self) -> Inputs:
        """Returns inputs on the model's device."""
        return tuple(moved(value, self.device) for value in self.inputs())

    def program(self) -> torch.jit.ScriptModule:
        module = self.fresh()
        if not self.traced:
            script: Any = self.script or torch.jit.script
            program: torch.jit.ScriptModule = script(module)
            return program
        torch.manual_seed(1)
        state = copy.deepcopy(module.state_dict())  # tracing runs the module, which changes buffers
        traced: torch.jit.ScriptModule = trace(module, self.batch(), check_trace=False)
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
