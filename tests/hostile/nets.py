"""Small networks that hostile options and plans are tried on, and what a step of them gives in eager PyTorch."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import aten_recompute
from failing_memory.scenes import SCENES, Scene, eager_results

NETS = ("gpt", "convolutions", "segments", "regions")

# What a step of an input that is refused may raise: an error of the library, or of the operator that its data break.
REFUSALS = (ValueError, RuntimeError, MemoryError)


@dataclass
class Net:
    """A network, its inputs, and the results of a step."""

    scene: Scene
    inputs: tuple[Tensor, ...]
    wanted: list[Tensor]

    def step(self, module: torch.nn.Module) -> str:
        """Runs two steps. Returns what is wrong with their results; "" if nothing is."""
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        for number in range(2):
            with torch.no_grad():
                for name, tensor in module.state_dict().items():
                    tensor.copy_(state[name])
            results = self.scene.run(module, self.inputs)
            same = len(results) == len(self.wanted) and all(map(torch.equal, results, self.wanted))
            if not same:
                return f"step {number + 1} has other results than eager PyTorch"
        return ""


@functools.cache
def net(name: str) -> Net:
    scene = SCENES[name]
    return Net(scene, scene.inputs(), eager_results(scene))


def one_line(error: BaseException) -> str:
    """Returns what is wrong with the message of an error of the library; "" if nothing is."""
    text = str(error)
    if not text.strip():
        return f"{type(error).__name__} without a message"
    if isinstance(error, aten_recompute.Error) and "\n" in text.strip():
        return f"the message has several lines: {text[:300]}"
    return ""


def judge_step(name: str, lower: Callable[[torch.jit.ScriptModule], Any]) -> tuple[bool, str]:
    """Scripts and lowers the network, and trains it. Returns whether it was accepted, and what is wrong."""
    chosen = net(name)
    try:
        lowered = lower(torch.jit.script(chosen.scene.eager()))
        return True, chosen.step(lowered)
    except REFUSALS as error:
        return False, one_line(error)
