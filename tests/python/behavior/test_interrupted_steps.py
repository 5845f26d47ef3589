"""An exception in any phase of a step, KeyboardInterrupt included, leaves the module as it was.

Hooks and operators that are written in Python raise at their n-th call, for every n, in the first step, which profiles
and plans, and in later ones.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

import aten_recompute
from support.helpers import tensors_in

STRATEGIES: dict[str, dict[str, Any]] = {
    "segments": {"strategy": "segments"},
    "budget": {"strategy": "budget", "memory_budget": 0.1, "unreachable": "leanest", "cost_model": "flops"},
}
MOST_CALLS = 200


class Countdown:
    """Raises when it is called for the n-th time."""

    def __init__(self) -> None:
        self.left = 0
        self.error: BaseException = RuntimeError()

    def start(self, n: int, error: BaseException) -> None:
        self.left, self.error = n, error

    def call(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


countdown = Countdown()

library = torch.library.Library("recompute_interrupted", "DEF")
library.define("doubled(Tensor x) -> Tensor")


def doubled(x: Tensor) -> Tensor:
    countdown.call()
    return x * 2


def doubled_backward(_: Any, gradient: Tensor) -> Tensor:
    countdown.call()
    return gradient * 2


library.impl("doubled", doubled, "CPU")
torch.library.register_autograd("recompute_interrupted::doubled", doubled_backward, lib=library)


class Net(nn.Module):
    def __init__(self, has_operator: bool) -> None:
        super().__init__()
        self.has_operator = has_operator
        self.first = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm(self.first(x)))
        if self.has_operator:
            x = torch.ops.recompute_interrupted.doubled(x)
        x = torch.tanh(self.second(x))
        return self.third(F.dropout(x, 0.2)).square().mean()


def make(has_operator: bool) -> Net:
    torch.manual_seed(1)
    return Net(has_operator)


def inputs() -> Tensor:
    torch.manual_seed(2)
    return torch.randn(16, 8)


Step = Callable[[nn.Module], list[Tensor]]


def plain_step(module: nn.Module) -> list[Tensor]:
    module.zero_grad(set_to_none=True)
    torch.manual_seed(3)
    loss = module(inputs())
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


def with_saved_tensors_hooks(module: nn.Module) -> list[Tensor]:
    def seen(tensor: Tensor) -> Tensor:
        countdown.call()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, seen):
        return plain_step(module)


def with_hooks_of_parameters(module: nn.Module) -> list[Tensor]:
    def seen(*_: Any) -> None:
        countdown.call()

    handles = [p.register_hook(seen) for p in module.parameters()]
    handles += [p.register_post_accumulate_grad_hook(seen) for p in module.parameters()]
    try:
        return plain_step(module)
    finally:
        for handle in handles:
            handle.remove()


def with_a_retained_graph(module: nn.Module) -> list[Tensor]:
    """A backward may fail, and then runs again on the same graph."""
    parameters = list(module.parameters())
    torch.manual_seed(3)
    loss = module(inputs())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    handles = [p.register_hook(lambda gradient: countdown.call()) for p in parameters]
    try:
        torch.autograd.grad(loss, parameters, retain_graph=True)
    finally:
        for handle in handles:
            handle.remove()
        assert all(map(torch.equal, torch.autograd.grad(loss, parameters), first))
    return [loss.detach(), *first]


STEPS: dict[str, Step] = {
    "operators": plain_step,
    "saved tensors": with_saved_tensors_hooks,
    "hooks of parameters": with_hooks_of_parameters,
    "a retained graph": with_a_retained_graph,
}


def settings() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.is_inference_mode_enabled(),
    )


def restore(module: nn.Module, state: list[Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(module.state_dict().values(), state, strict=True):
            tensor.copy_(value)


def in_other_modes(module: nn.Module) -> list[Tensor]:
    """Returns what the module computes without gradients, in evaluation, and with a tangent."""
    with torch.no_grad():
        torch.manual_seed(4)
        results = [module(inputs())]
    module.eval()
    torch.manual_seed(4)
    results.append(module(inputs()).detach())
    # PyTorch has no forward-mode formula for an operator of torch.library.
    with forward_ad.dual_level() if not module.has_operator else contextlib.nullcontext():
        torch.manual_seed(4)
        x = inputs() if module.has_operator else forward_ad.make_dual(inputs(), torch.ones(16, 8))
        dual = forward_ad.unpack_dual(module(x))
        results += [each.detach() for each in dual if each is not None]
    module.train()
    return results


def is_raised_in(step: Step, module: nn.Module, n: int, error: BaseException) -> bool:
    """Runs a step in which the `n`-th call raises. Returns whether there are as many.

    TorchScript makes a RuntimeError of what an operator raises. An operator that raises while it is profiled is
    measured in another way, and the step goes on.
    """
    countdown.start(n, error)
    with contextlib.suppress(BaseException):
        step(module)
    was_raised = countdown.left <= 0
    countdown.start(0, error)
    return was_raised


def interruptions(step: Step, lower: Callable[[], nn.Module], state: list[Tensor]) -> Iterator[nn.Module]:
    """Yields a module after each step in which something has raised: at its first call, its second, and so on."""
    before = settings()
    for n in itertools.count(1):
        assert n < MOST_CALLS
        module = lower()
        restore(module, state)
        error = [KeyboardInterrupt("stop"), RuntimeError("a fault"), SystemExit(3)][n % 3]
        if not is_raised_in(step, module, n, error):
            assert n > 1
            return
        assert settings() == before
        yield module


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("is_first", [True, False], ids=["first step", "later step"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_after_an_interruption_has_the_gradients_of_eager(name: str, strategy: str, is_first: bool) -> None:
    step = STEPS[name]
    has_operator = name == "operators"
    eager = make(has_operator)
    state = [tensor.clone() for tensor in eager.state_dict().values()]
    wanted = step(eager)
    restore(eager, state)
    of_modes = in_other_modes(eager)

    scripted = torch.jit.script(make(has_operator))
    warm = aten_recompute.lower(scripted, **STRATEGIES[strategy])
    for _ in range(3):
        restore(warm, state)
        step(warm)

    def lower() -> nn.Module:
        return aten_recompute.lower(scripted, **STRATEGIES[strategy]) if is_first else warm

    for module in interruptions(step, lower, state):
        for _ in range(2):
            restore(module, state)
            assert all(map(torch.equal, step(module), wanted))
        restore(module, state)
        for mine, other in zip(tensors_in(in_other_modes(module)), of_modes, strict=True):
            torch.testing.assert_close(mine, other)
