"""saved_tensors_hooks and torch.utils.checkpoint work around a lowered module."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import aten_recompute
from benchmarks.memory import Tracker
from support.eager_comparison import STRATEGIES, Case, check, difference, every, run

# Recomputation in checkpoint(use_reentrant=False) ends with an exception, unless early stop is switched off.
LOST = "Python exceptions lose their type in TorchScript's interpreter"


class Perceptron(nn.Module):
    """The activations are its largest tensors."""

    def __init__(self, depth: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(depth)])
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.dropout(torch.tanh(layer(x))) * 1.5
        return x


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def vectors() -> Tensor:
    return torch.randn(64, 16, requires_grad=True)


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8, requires_grad=True)


def hooked(make_input: Callable[[], Tensor], pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> Any:
    def use(module: nn.Module) -> Any:
        x = make_input()
        with saved_tensors_hooks(pack, unpack):
            y = module(x)
        y.square().mean().backward()
        return y, x.grad

    return use


def on_cpu(module: nn.Module) -> Any:
    x = vectors()
    with save_on_cpu(pin_memory=False):
        y = module(x)
    y.square().mean().backward()
    return y, x.grad


def refused(module: nn.Module) -> Any:
    x = vectors()
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        module(x).mean().backward()
    return x.grad


def pack_raises(module: nn.Module) -> Any:
    def pack(tensor: Tensor) -> Tensor:
        raise ValueError("nothing is packed here")

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        module(vectors())


def checkpointed(
    make_input: Callable[[], Tensor], reentrant: bool, times: int = 1, early_stop: bool = False, warm: bool = True
) -> Callable[[nn.Module], Any]:
    """Computes gradients through checkpoints.

    TorchScript saves other tensors in its first two calls. With ``warm``, these run before the checkpoints.
    """

    def use(module: nn.Module) -> Any:
        for _ in range(2 if warm else 0):
            module(make_input()).sum().backward()
        module.zero_grad(set_to_none=True)
        x = make_input()
        y = x * 1.0
        with set_checkpoint_early_stop(early_stop):
            for _ in range(times):
                y = checkpoint(module, y, use_reentrant=reentrant)
            y.square().mean().backward()
        return y, x.grad

    return use


_AS_BYTES = (lambda tensor: tensor.numpy().copy(), torch.from_numpy)

CASES = [
    Case("as_bytes", Perceptron, hooked(vectors, *_AS_BYTES)),
    Case("as_bytes_dropout", lambda: Perceptron(dropout=0.3), hooked(vectors, *_AS_BYTES)),
    Case("as_bytes_convolution", Normed, hooked(images, *_AS_BYTES)),
    Case("save_on_cpu", Perceptron, on_cpu),
    Case("hooks_refused", Perceptron, refused),
    Case("pack_raises", Perceptron, pack_raises, error="nothing is packed here", stock=LOST),
    Case("early_stop", Perceptron, checkpointed(vectors, False, early_stop=True), stock=LOST),
    *(Case(f"checkpoint{'_reentrant' if reentrant else ''}_{name}_{times}", make,
           checkpointed(make_input, reentrant, times))
      for reentrant in (False, True)
      for name, make, make_input, times in (
          ("linear", Perceptron, vectors, 1),
          ("linear", Perceptron, vectors, 2),
          ("dropout", lambda: Perceptron(dropout=0.3), vectors, 1),
          ("dropout", lambda: Perceptron(dropout=0.3), vectors, 2),
          ("batch_norm", Normed, images, 1),
      )),
]  # fmt: skip


@every(CASES)
def test_results_with_hooks_and_checkpoints_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_checkpoint_may_surround_the_first_call(strategy: str) -> None:
    """The checkpoint runs the call twice; both times it has to save tensors of the same number and sizes."""
    case = Case("first", Perceptron, checkpointed(vectors, reentrant=False, warm=False))
    expected = run(case, lambda module: module)
    options = STRATEGIES[strategy][-1]
    actual = run(case, lambda module: aten_recompute.lower(torch.jit.script(module), options))
    assert expected.error is None
    assert difference(actual, expected) == ""


WAYS = pytest.mark.parametrize("strategy", ["eager", *STRATEGIES])


def prepared(strategy: str, depth: int = 4) -> nn.Module:
    """Returns a module, in eager or lowered, that has run its first steps."""
    torch.manual_seed(0)
    module: nn.Module = Perceptron(depth)
    if strategy != "eager":
        options = {**STRATEGIES[strategy][0]}
        if strategy == "budget":
            options["memory_budget"] = 0.6
        module = aten_recompute.lower(torch.jit.script(module), options)
    for _ in range(2):
        module(torch.randn(256, 16, requires_grad=True)).sum().backward()
    module.zero_grad(set_to_none=True)
    gc.collect()
    return module


@WAYS
def test_hooks_see_all_memory_that_is_kept(strategy: str, tracker: Tracker) -> None:
    """All memory in use after the forward was passed to the hooks, or belongs to the result."""
    module = prepared(strategy)
    x = torch.randn(256, 16, requires_grad=True)
    seen: list[Any] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen.append((storage.data_ptr(), storage.nbytes()))
        return tensor

    before = tracker.live_bytes
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        y = module(x)
    kept = tracker.live_bytes - before
    known = {tensor.untyped_storage().data_ptr() for tensor in [x, y, *module.parameters()]}
    shown = sum({place: size for place, size in seen if place not in known}.values())
    result = y.untyped_storage().nbytes()
    assert kept > result  # otherwise, nothing is kept
    assert shown >= 0.95 * (kept - result)


@WAYS
def test_memory_that_hooks_pack_is_freed(strategy: str, tracker: Tracker) -> None:
    """Hooks that pack tensors into other memory leave only the result."""
    module = prepared(strategy)
    x = torch.randn(256, 16, requires_grad=True)
    before = tracker.live_bytes
    with saved_tensors_hooks(*_AS_BYTES):
        y = module(x)
    kept = tracker.live_bytes - before - y.untyped_storage().nbytes()
    assert kept < 0.05 * y.untyped_storage().nbytes()


@WAYS
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_lower_the_peak(strategy: str, reentrant: bool, tracker: Tracker) -> None:
    """Of six checkpointed modules, only one keeps its activations at a time."""
    modules = [prepared(strategy, 6) for _ in range(6)]

    def peak(around: Callable[..., Tensor]) -> int:
        for module in modules:
            module.zero_grad(set_to_none=True)
        with tracker.measure_peak() as measured, set_checkpoint_early_stop(False):
            x = torch.randn(256, 16, requires_grad=True)
            for module in modules:
                x = around(module, x)
            x.sum().backward()
        return measured.bytes

    plain = peak(lambda module, x: module(x))
    checkpointed = peak(lambda module, x: checkpoint(module, x, use_reentrant=reentrant))
    # Strategies that recompute keep less anyway.
    assert checkpointed < (0.5 if strategy in ("eager", "none") else 0.9) * plain
