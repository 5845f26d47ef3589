"""torch.func and forward-mode differentiation work through a lowered module, and later calls are still planned."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import aten_recompute
from benchmarks.memory import Tracker
from support.eager_comparison import STRATEGIES, Case, check, every

DETACHED = "TorchScript's interpreter detaches arguments, and with them what a transform of torch.func follows"
STATELESS = "torch.func.functional_call refuses every ScriptModule"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


class Normed(Net):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.sigmoid(self.norm(self.first(x))))


def grad(module: nn.Module) -> Any:
    return torch.func.grad(lambda x: module(x).square().sum())(torch.randn(4, 6))


def grad_and_value(module: nn.Module) -> Any:
    return torch.func.grad_and_value(lambda x: module(x).square().sum())(torch.randn(4, 6))


def grad_of_grad(module: nn.Module) -> Any:
    inner = torch.func.grad(lambda x: module(x).square().sum())
    return torch.func.grad(lambda x: inner(x).square().sum())(torch.randn(4, 6))


def vjp(module: nn.Module) -> Any:
    y, pull = torch.func.vjp(module, torch.randn(4, 6))  # type: ignore[misc]
    return y, pull(torch.ones_like(y))


def vmap(module: nn.Module) -> Any:
    return torch.func.vmap(module)(torch.randn(3, 4, 6))


def vmap_of_grad(module: nn.Module) -> Any:
    """Computes the gradient of each sample."""
    return torch.func.vmap(torch.func.grad(lambda x: module(x).square().sum()))(torch.randn(4, 6))


def vmap_in_no_grad(module: nn.Module) -> Any:
    with torch.no_grad():
        return torch.func.vmap(module)(torch.randn(3, 4, 6))


def jacrev(module: nn.Module) -> Any:
    return torch.func.jacrev(lambda x: module(x))(torch.randn(2, 6))


def jvp(module: nn.Module) -> Any:
    return torch.func.jvp(lambda x: module(x), (torch.randn(4, 6),), (torch.randn(4, 6),))


def jacfwd(module: nn.Module) -> Any:
    return torch.func.jacfwd(lambda x: module(x))(torch.randn(2, 6))


def dual(module: nn.Module) -> Any:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.randn(4, 6), torch.randn(4, 6))
        return forward_ad.unpack_dual(module(x)).tangent


def functional_call(module: nn.Module) -> Any:
    """Replaces the parameters by other tensors, some of which require grad."""
    others = {
        name: torch.rand_like(p).requires_grad_(name.startswith("first")) for name, p in module.named_parameters()
    }
    y = torch.func.functional_call(module, others, (torch.randn(4, 6),))
    y.square().sum().backward()
    return y, [p.grad for p in others.values()]


def functional_grad(module: nn.Module) -> Any:
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    x = torch.randn(4, 6)
    return torch.func.grad(lambda p: torch.func.functional_call(module, p, (x,)).square().sum())(parameters)


def functionalized(module: nn.Module) -> Any:
    return torch.func.functionalize(lambda x: module(x) + 1)(torch.randn(4, 6))


def inference(module: nn.Module) -> Any:
    with torch.inference_mode():
        return module(torch.randn(4, 6))


CASES = [
    Case(f"{use.__name__}_{make.__name__}", make, use, stock=stock, asks_more=stock == DETACHED)
    for make in (Net, Normed)
    for use, stock in (
        (grad, ""), (grad_and_value, ""), (grad_of_grad, DETACHED), (vjp, ""),
        (jacrev, ""), (vmap_of_grad, ""),
        (vmap, DETACHED), (vmap_in_no_grad, DETACHED), (jvp, DETACHED), (jacfwd, DETACHED),
        (dual, DETACHED), (inference, DETACHED), (functionalized, ""),
        (functional_call, STATELESS), (functional_grad, STATELESS),
    )
]  # fmt: skip


@every(CASES)
def test_transforms_of_torch_func_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)


def peak(module: nn.Module, x: Tensor, tracker: Tracker) -> int:
    module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as measured:
        module(x).sum().backward()
    return measured.bytes


_PEAKS: dict[str, int] = {}  # of modules that saw no transform, by strategy


@pytest.mark.parametrize("use", [grad, vmap, jvp, dual, functionalized, inference], ids=lambda use: use.__name__)
@pytest.mark.parametrize("strategy", ["none", "segments", "budget"])
def test_calls_after_a_transform_are_planned(use: Callable[[nn.Module], Any], strategy: str, tracker: Tracker) -> None:
    """The transform is the first call and may raise; later calls have the peak of a module that saw no transform.

    Plans are made from numbers of operations, because measured times may lead to another plan in each run.
    """
    options = {**STRATEGIES[strategy][0], "cost_model": "flops"} if strategy == "budget" else STRATEGIES[strategy][0]
    torch.manual_seed(0)
    net = nn.Sequential(*[Net() for _ in range(3)])
    x = torch.randn(256, 6, requires_grad=True)

    def third_peak(lowered: nn.Module) -> int:
        return [peak(lowered, x, tracker) for _ in range(3)][-1]

    lowered = aten_recompute.lower(torch.jit.script(net), options)
    with contextlib.suppress(RuntimeError):
        use(lowered)
    if strategy not in _PEAKS:
        _PEAKS[strategy] = third_peak(aten_recompute.lower(torch.jit.script(net), options))
    assert third_peak(lowered) <= _PEAKS[strategy]
