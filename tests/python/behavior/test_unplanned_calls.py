"""Calls that cannot follow a plan run as plain TorchScript, and the report counts them with the reason."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import aten_recompute
from support.helpers import lowered_copy, saved_and_loaded
from support.nets import Residual, TwoMethods


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Function(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def unplanned(lowered: torch.jit.ScriptModule, method: int = 0) -> dict[str, int]:
    listed = aten_recompute.report(lowered)["methods"][method]["unplanned_calls"]
    return {each["reason"]: each["calls"] for each in listed}


def rows() -> Tensor:
    return torch.rand(4, 16)


def with_tangent(module: Any) -> None:
    with forward_ad.dual_level():
        module(forward_ad.make_dual(rows(), rows()))


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def test_a_call_with_operators_outside_of_regions_under_autocast_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RECOMPUTE_DISABLE_PASSES", "record_path")

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor, parts: list[Tensor]) -> Tensor:
            y = self.layer(torch.cat(parts, 1))
            return self.layer(y) + x

    lowered = lowered_copy(Split(), "all")
    parts = list(rows().requires_grad_().chunk(2, 1))
    with autocast():
        lowered(rows(), parts)
    assert unplanned(lowered) == {"autocast is on, and operators run outside of the method's planned regions": 1}
    lowered(rows(), parts)
    assert unplanned(lowered) == {"autocast is on, and operators run outside of the method's planned regions": 1}


class ListAndWrite(nn.Module):
    """The write may be one to the caller's tensor, and the list of its second region has no backward of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor, index: int) -> Tensor:
        y = torch.tanh(self.layer(x))
        with torch.no_grad():
            written = x.contiguous()
        written.mul_(0.5)
        z = torch.relu(self.layer(y))
        results = [z, self.layer(z * 0.5)]
        return self.layer(results[index]) + y


def test_a_method_with_a_region_that_has_no_backward_is_unplanned_under_autocast() -> None:
    """Two regions, of which one has a plan, would not add the gradients of a cast in eager's order."""
    net = ListAndWrite()
    lowered = lowered_copy(net, "none")
    for seed in range(3):
        for module in (net, lowered):
            torch.manual_seed(seed)
            module.zero_grad()
            x = rows()
            with autocast():
                result = module(x, seed % 2)
            result.float().square().sum().backward()
        for ours, eagers in zip(lowered.parameters(), net.parameters(), strict=True):
            assert ours.grad is not None
            assert eagers.grad is not None
            assert torch.equal(ours.grad, eagers.grad)
    assert unplanned(lowered) == {"autocast is on, and operators run outside of the method's planned regions": 3}


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "dispatch mode": (Dispatch, "a TorchDispatchMode is on"),
    "flop counter": (lambda: FlopCounterMode(display=False), "a TorchDispatchMode is on"),
}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("strategy", ["none", "all", "budget"])
def test_the_report_counts_unplanned_calls(kind: str, strategy: str) -> None:
    options: dict[str, Any] = {"memory_budget": 1.0} if strategy == "budget" else {}
    lowered = lowered_copy(Residual(), strategy, **options)
    mode, reason = CALLS[kind]
    assert unplanned(lowered) == {}
    lowered(rows()).sum().backward()
    assert unplanned(lowered) == {}
    for _ in range(3):
        with mode():
            lowered(rows()).sum().backward()
    assert unplanned(lowered) == {reason: 3}
    lowered(rows()).sum().backward()
    assert unplanned(lowered) == {reason: 3}
    assert len(aten_recompute.report(lowered)["methods"][0]["specialisations"]) == 1


def test_each_reason_is_counted_by_itself() -> None:
    lowered = lowered_copy(Residual(), "all")
    with Dispatch():
        lowered(rows())
    for _ in range(2):
        torch.func.vmap(lowered)(rows())
    with_tangent(lowered)
    assert unplanned(lowered) == {
        "a TorchDispatchMode is on": 1,
        "a transform of torch.func is on": 2,
        "forward-mode differentiation is on": 1,
    }
    assert aten_recompute.report(lowered)["methods"][0]["specialisations"] == []


@pytest.mark.parametrize("mode", [contextlib.nullcontext, Function, torch.no_grad, torch.inference_mode, autocast])
def test_other_calls_are_planned(mode: Callable[[], Any]) -> None:
    lowered = lowered_copy(Residual(), "all")
    with mode():
        lowered(rows())
    assert unplanned(lowered) == {}


def test_methods_are_counted_by_themselves() -> None:
    lowered: Any = lowered_copy(TwoMethods(), "all", methods=["forward", "encode"])
    x = torch.rand(2, 5)
    with Dispatch():
        lowered.encode(x)
    methods = {each["method"]: each["unplanned_calls"] for each in aten_recompute.report(lowered)["methods"]}
    assert methods == {"forward": [], "encode": [{"reason": "a TorchDispatchMode is on", "calls": 1}]}


@pytest.mark.lowered_only
def test_a_loaded_module_counts_anew() -> None:
    lowered = lowered_copy(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), "all")
    with Dispatch():
        lowered(rows())
    again = saved_and_loaded(lowered)
    assert unplanned(again) == {}
    with Dispatch():
        again(rows())
    assert unplanned(again) == {"a TorchDispatchMode is on": 1}


def test_a_call_that_raises_after_changes_is_made_again_unplanned() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)
            self.calls: int = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            y = torch.tanh(self.layer(x))
            if x.size(0) > 100:
                y = y * 2
            self.calls += 10
            return y

    lowered: Any = lowered_copy(Counts(), "all")
    lowered(rows())
    assert unplanned(lowered) == {}
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        lowered(torch.rand(4, 3))
    ((reason, calls),) = unplanned(lowered).items()
    assert reason.startswith("the planned call raised an error")
    assert calls == 1
    assert lowered.calls == 12
