"""The steps in which requests fail: small networks, each with what a step of it returns."""

import contextlib
import copy
import io
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.networks.gpt import GPT
from support.gradient_programs import Forces

SEED = 5
State = list[Tensor]


@dataclass
class Scene:
    """A network, its inputs, and a step that returns the loss and all gradients."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    step: Callable[[nn.Module, tuple[Tensor, ...]], list[Tensor]]
    options: dict[str, Any] = field(default_factory=dict)
    # Second derivatives add gradients in another order, so they have other last bits than eager's.
    has_bits_of_eager: bool = True

    def eager(self) -> nn.Module:
        torch.manual_seed(SEED)
        return self.make().train()

    def run(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """Runs a step, after gradients are freed and the generator is seeded."""
        module.zero_grad(set_to_none=True)
        torch.manual_seed(SEED)
        results = self.step(module, inputs)
        return [result.detach().clone() for result in results]


def lowered(scene: Scene) -> torch.jit.ScriptModule:
    return aten_recompute.lower(torch.jit.script(scene.eager()), **scene.options)


def state_of(module: nn.Module) -> State:
    return [tensor.detach().clone() for tensor in module.state_dict().values()]


def restore(module: nn.Module, state: Sequence[Tensor]) -> None:
    """Writes back what a step changes besides gradients, such as the statistics of a norm."""
    with torch.no_grad():
        for tensor, value in zip(module.state_dict().values(), state, strict=True):
            tensor.copy_(value)


def _gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


def _train(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    loss = module(*inputs)
    if loss.dim() > 0:
        loss = loss.square().mean()
    loss.backward()
    return [loss.detach(), *_gradients(module)]


def _train_quietly(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with contextlib.redirect_stdout(io.StringIO()):
        return _train(module, inputs)


def _train_twice_differentiated(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """A penalty on the gradient of the input, hence second derivatives."""
    x = inputs[0].detach().requires_grad_(True)
    out = module(x).square().mean()
    (gradient,) = torch.autograd.grad(out, [x], create_graph=True)
    loss = out + gradient.square().sum()
    loss.backward()
    return [loss.detach(), *_gradients(module)]


def _train_on_forces(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    energy, forces = module(inputs[0].detach().clone())
    loss = energy.square() + forces.square().mean()
    loss.backward()
    return [loss.detach(), *_gradients(module)]


def _train_on_two_threads(module: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Two threads call the module at once. An error of one is raised when both are done."""
    parameters = list(module.parameters())
    results: list[list[Tensor]] = [[], []]
    errors: list[Exception] = []

    def train(index: int) -> None:
        try:
            loss = module(inputs[index]).square().mean()
            results[index] = [loss.detach(), *torch.autograd.grad(loss, parameters)]
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results[0] + results[1]


class Convolutions(nn.Module):
    """Convolutions with batch norm, a residual, dropout and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = x + torch.relu(self.second(x))
        return self.head(self.dropout(x).mean(dim=[2, 3]))


class TwoRegions(nn.Module):
    """What it prints divides the method into two regions."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.a = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.b = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.a:
            x = torch.tanh(torch.sigmoid(layer(x)))
        y = x
        print("between")
        for layer in self.b:
            x = torch.tanh(torch.sigmoid(layer(x)))
        return (x * y).sum()


class Mlp(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def _tokens() -> tuple[Tensor, ...]:
    torch.manual_seed(SEED)
    return torch.randint(17, (2, 6)), torch.randint(17, (2, 6))


def _random(*sizes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    def make() -> tuple[Tensor, ...]:
        torch.manual_seed(SEED)
        return tuple(torch.randn(*each) for each in sizes)

    return make


# The leanest plan has the most to recompute. Times of operators would make each run another one.
_LEAN: dict[str, Any] = {"strategy": "budget", "memory_budget": 0.1, "unreachable": "leanest"}
_FLOPS: dict[str, Any] = {**_LEAN, "cost_model": "flops"}

SCENES: dict[str, Scene] = {
    "gpt": Scene(
        lambda: GPT(blocks=2, width=16, heads=2, context=6, vocabulary=17),
        _tokens,
        _train,
        _LEAN,
    ),
    "convolutions": Scene(Convolutions, _random((2, 3, 6, 6)), _train, _FLOPS),
    "segments": Scene(lambda: Mlp(16), _random((4, 16)), _train, {"strategy": "segments"}),
    "second": Scene(Mlp, _random((4, 12)), _train_twice_differentiated, _FLOPS, has_bits_of_eager=False),
    "forces": Scene(Forces, _random((6, 3)), _train_on_forces, _FLOPS),
    "regions": Scene(TwoRegions, _random((16, 12)), _train_quietly, _FLOPS),
    "threads": Scene(
        Mlp,
        _random((8, 12), (8, 12)),
        _train_on_two_threads,
        _FLOPS,
    ),
}


def eager_results(scene: Scene) -> list[Tensor]:
    """Returns what a step gives in eager PyTorch, from the state that `Scene.eager` has.

    Where that has other last bits, returns what a lowered module gives in which nothing has failed.
    """
    results = scene.run(copy.deepcopy(scene.eager()), scene.inputs())
    if scene.has_bits_of_eager:
        return results
    own = scene.run(lowered(scene), scene.inputs())
    for mine, eager in zip(own, results, strict=True):
        torch.testing.assert_close(mine, eager)
    return own
