"""Errors that a user can mend have classes with fields, wherever they are raised."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import (
    BudgetUnreachableError,
    InvalidOptionError,
    InvalidRuleError,
    NoSuchMethodError,
    NotEnabledError,
    NotLoweredError,
    PlanMismatchError,
)
from support.helpers import lowered_copy, saved_and_loaded, scripted_copy, to_backend
from support.nets import Residual

TINY: dict[str, Any] = {"memory_budget": 1000, "cost_model": "flops"}


def raised_by(kind: type[aten_recompute.Error], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the error that a call raises, which is exactly of this class, and has one line and no other error."""
    with pytest.raises(kind) as raised:
        call(*args, **kwargs)
    assert type(raised.value) is kind
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    return raised.value


def rows() -> Tensor:
    return torch.rand(64, 16)


def loss(x: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(x @ weight)).sum()


class Nested(nn.Module):
    """Calls what is lowered or enabled from a method of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.inner(x)
        return h + 1.0


def lowered() -> torch.jit.ScriptModule:
    return lowered_copy(Residual(), "budget", **TINY)


def enabled() -> torch.jit.ScriptModule:
    scripted = scripted_copy(Residual())
    aten_recompute.enable(scripted, "budget", **TINY)
    return scripted


def lowered_in_lowered() -> torch.jit.ScriptModule:
    outer = torch.jit.script(Nested(lowered_copy(Residual(), "budget", **TINY)))
    return torch.jit.script(Nested(outer))


WAYS: dict[str, Callable[[], Callable[[Tensor], Any]]] = {
    "lowered": lowered,
    "loaded": lambda: saved_and_loaded(lowered()),
    "enabled": enabled,
    "lowered inside": lambda: torch.jit.script(Nested(lowered())),
    "enabled inside": lambda: torch.jit.script(Nested(enabled())),
    "twice inside": lowered_in_lowered,
    "to_backend": lambda: to_backend(
        scripted_copy(Residual()), '{"strategy": "budget", "memory_budget": 1000, "cost_model": "flops"}'
    ),
}


def test_code_that_catches_standard_errors_goes_on_to_work() -> None:
    """Before there were classes, calls raised RuntimeError and other functions ValueError."""
    classes = [getattr(aten_recompute, name) for name in aten_recompute.__all__ if name.endswith("Error")]
    assert len(classes) == 8
    for each in classes:
        assert issubclass(each, aten_recompute.Error)
        assert issubclass(each, RuntimeError)
        assert issubclass(each, ValueError) == (each is not aten_recompute.Error)
        assert each.__doc__


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.lowered_only
def test_a_budget_that_cannot_be_kept_names_what_can(way: str) -> None:
    module = WAYS[way]()
    x = rows()
    error = raised_by(BudgetUnreachableError, module, x)
    assert error.limit_bytes == 1000
    assert 1000 < error.smallest_peak_bytes <= error.unplanned_peak_bytes


@pytest.mark.lowered_only
def test_the_smallest_peak_is_a_budget_that_can_be_kept() -> None:
    x = rows()
    smallest = raised_by(BudgetUnreachableError, lowered(), x).smallest_peak_bytes
    lowered_copy(Residual(), "budget", memory_budget=smallest, cost_model="flops")(x)
    below = lowered_copy(Residual(), "budget", memory_budget=smallest - 1, cost_model="flops")
    assert raised_by(BudgetUnreachableError, below, x).limit_bytes == smallest - 1


def test_the_budget_of_a_function() -> None:
    function = torch.jit.script(loss)
    with aten_recompute.enabled(function, "budget", **TINY):
        error = raised_by(BudgetUnreachableError, function, rows().requires_grad_(), torch.rand(16, 16))
    assert error.limit_bytes == 1000


def test_errors_of_two_modules_are_told_apart() -> None:
    """Both messages are kept: the fields are those of the error that was raised, not those of the latest."""
    nets = [lowered_copy(Residual(), "budget", memory_budget=size, cost_model="flops") for size in (1000, 2000)]
    x = rows()
    for _ in range(2):
        for net, size in zip(nets, (1000, 2000), strict=True):
            assert raised_by(BudgetUnreachableError, net, x).limit_bytes == size


@pytest.mark.lowered_only
def test_both_budgets_together() -> None:
    x = rows()
    smallest = raised_by(BudgetUnreachableError, lowered(), x).smallest_peak_bytes
    both = lowered_copy(Residual(), "budget", memory_budget=smallest, time_budget=1.0, cost_model="flops")
    error = raised_by(BudgetUnreachableError, both, x)
    assert "no plan keeps both" in str(error)
    assert error.limit_bytes == smallest
    assert error.smallest_peak_bytes > smallest


@pytest.mark.lowered_only
def test_a_plan_for_another_model(tmp_path: Path) -> None:
    planned = lowered_copy(Residual(), "all", profile=True)
    planned(rows())
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    other = lowered_copy(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), plan=str(tmp_path / "plan.json"))
    error = raised_by(PlanMismatchError, other, rows())
    assert len(error.region) == 16
    assert error.region in str(error)


def test_a_module_that_is_not_lowered() -> None:
    plain = scripted_copy(Residual())
    for ask in (aten_recompute.report, aten_recompute.problems):
        raised_by(NotLoweredError, ask, plain)
    raised_by(NotLoweredError, aten_recompute.save_plan, plain, "plan.json")
    assert str(raised_by(NotLoweredError, aten_recompute.draw, plain, "x.dot")).startswith("draw: ")


def test_a_function_that_is_not_enabled() -> None:
    function = torch.jit.script(loss)
    raised_by(NotEnabledError, aten_recompute.report, function)
    raised_by(NotEnabledError, aten_recompute.disable, function)


def test_a_method_that_does_not_exist() -> None:
    plain = scripted_copy(Residual())
    for call in (aten_recompute.lower, aten_recompute.enable):
        error = raised_by(NoSuchMethodError, call, plain, "all", methods="forwrad")
        assert error.method == "forwrad"
    error = raised_by(NoSuchMethodError, aten_recompute.estimate, plain, (rows(),), method="forwrad")
    assert error.method == "forwrad"
    assert str(error).startswith("estimate: ")


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"strategy": "budgets"}, "strategy"),
        ({"strategy": "all", "patern": "x"}, "patern"),
        ({"strategy": "segments", "count": 0}, "count"),
        ({"strategy": "all", "pattern": "towers"}, "pattern"),
        ({"strategy": "budget"}, ""),
    ],
)
def test_an_option_that_is_not_accepted(options: dict[str, Any], option: str) -> None:
    plain = scripted_copy(Residual())
    for call in (aten_recompute.lower, aten_recompute.enable):
        error = raised_by(InvalidOptionError, call, plain, options)
        assert error.option == option


def test_a_plan_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    plain = scripted_copy(Residual())
    assert raised_by(InvalidOptionError, aten_recompute.lower, plain, plan=tmp_path / "plan.json").option == "plan"


def test_a_rule_that_cannot_be_registered() -> None:
    def backward(grad: Tensor) -> Tensor:
        return grad

    error = raised_by(InvalidRuleError, aten_recompute.register_rule, "nobody::knows", backward=backward)
    assert error.op == "nobody::knows"


def test_a_problem_without_a_plan() -> None:
    planned = lowered_copy(Residual(), "none", profile=True)
    planned(rows())
    problem = aten_recompute.problems(planned)[0]
    error = raised_by(BudgetUnreachableError, aten_recompute.plan_problem, problem, 1000)
    assert error.limit_bytes == 1000
    assert aten_recompute.plan_problem(problem, error.smallest_peak_bytes)["peak_bytes"] == error.smallest_peak_bytes


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x)
        print("between")
        return torch.tanh(h)


def test_other_errors_of_the_library_have_the_base_class(capfd: pytest.CaptureFixture[str]) -> None:
    module = lowered_copy(Broken(), "all", fullgraph=True)
    error = raised_by(aten_recompute.Error, module, rows().requires_grad_())
    assert "fullgraph" in str(error)
    assert capfd.readouterr().out == ""


def test_errors_of_pytorch_are_as_they_were() -> None:
    module = lowered_copy(Residual(), "all")
    with pytest.raises(RuntimeError, match="mat1 and mat2") as raised:
        module(torch.rand(3, 5))
    assert type(raised.value) is RuntimeError


@pytest.mark.lowered_only
def test_an_error_survives_pickling() -> None:
    """As in a process of multiprocessing that hands its error to another one."""
    error = raised_by(BudgetUnreachableError, lowered(), rows())
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is BudgetUnreachableError
    assert str(copy) == str(error)
    assert copy.smallest_peak_bytes == error.smallest_peak_bytes
