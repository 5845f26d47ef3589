"""Errors that a user can mend have classes with fields, wherever they are raised."""

import functools
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


def raised_by(call: Callable[[], Any], kind: type[aten_recompute.Error]) -> Any:
    """Returns the error that a call raises, which is exactly of this class, and has one line and no other error."""
    with pytest.raises(kind) as raised:
        call()
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.lowered_only
def test_a_budget_that_cannot_be_kept_names_what_can(way: str) -> None:
    module = WAYS[way]()
    x = rows()
    error = raised_by(lambda: module(x), BudgetUnreachableError)
    assert issubclass(type(error), ValueError)
    assert issubclass(type(error), RuntimeError)
    assert error.limit_bytes == 1000
    assert 1000 < error.smallest_peak_bytes <= error.unplanned_peak_bytes


@pytest.mark.lowered_only
def test_the_smallest_peak_is_a_budget_that_can_be_kept() -> None:
    x = rows()
    smallest = raised_by(lambda: lowered()(x), BudgetUnreachableError).smallest_peak_bytes
    lowered_copy(Residual(), "budget", memory_budget=smallest, cost_model="flops")(x)
    below = lowered_copy(Residual(), "budget", memory_budget=smallest - 1, cost_model="flops")
    assert raised_by(lambda: below(x), BudgetUnreachableError).limit_bytes == smallest - 1


def test_the_budget_of_a_function() -> None:
    function = torch.jit.script(loss)
    aten_recompute.enable(function, "budget", **TINY)
    error = raised_by(lambda: function(rows().requires_grad_(), torch.rand(16, 16)), BudgetUnreachableError)
    aten_recompute.disable(function)
    assert error.limit_bytes == 1000


def test_errors_of_two_modules_are_told_apart() -> None:
    """Both messages are kept: the fields are those of the error that was raised, not those of the latest."""
    nets = [lowered_copy(Residual(), "budget", memory_budget=size, cost_model="flops") for size in (1000, 2000)]
    x = rows()
    for _ in range(2):
        for net, size in zip(nets, (1000, 2000), strict=True):
            assert raised_by(functools.partial(net, x), BudgetUnreachableError).limit_bytes == size


@pytest.mark.lowered_only
def test_both_budgets_together() -> None:
    x = rows()
    smallest = raised_by(lambda: lowered()(x), BudgetUnreachableError).smallest_peak_bytes
    both = lowered_copy(Residual(), "budget", memory_budget=smallest, time_budget=1.0, cost_model="flops")
    error = raised_by(lambda: both(x), BudgetUnreachableError)
    assert "no plan keeps both" in str(error)
    assert error.limit_bytes == smallest
    assert error.smallest_peak_bytes > smallest


@pytest.mark.lowered_only
def test_a_plan_for_another_model(tmp_path: Path) -> None:
    planned = lowered_copy(Residual(), "all", profile=True)
    planned(rows())
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    other = lowered_copy(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), plan=tmp_path / "plan.json")
    error = raised_by(lambda: other(rows()), PlanMismatchError)
    assert issubclass(type(error), ValueError)
    assert len(error.region) == 16
    assert error.region in str(error)


def test_a_module_that_is_not_lowered() -> None:
    plain = scripted_copy(Residual())
    for ask in (aten_recompute.report, aten_recompute.problems):
        assert isinstance(raised_by(functools.partial(ask, plain), NotLoweredError), ValueError)
    raised_by(lambda: aten_recompute.save_plan(plain, "plan.json"), NotLoweredError)
    assert str(raised_by(lambda: aten_recompute.draw(plain, "x.dot"), NotLoweredError)).startswith("draw: ")


def test_a_function_that_is_not_enabled() -> None:
    function = torch.jit.script(loss)
    assert isinstance(raised_by(lambda: aten_recompute.report(function), NotEnabledError), ValueError)
    raised_by(lambda: aten_recompute.disable(function), NotEnabledError)


def test_a_method_that_does_not_exist() -> None:
    plain = scripted_copy(Residual())
    for call in (aten_recompute.lower, aten_recompute.enable):
        error = raised_by(functools.partial(call, plain, "all", methods="forwrad"), NoSuchMethodError)
        assert issubclass(type(error), ValueError)
        assert error.method == "forwrad"
    error = raised_by(lambda: aten_recompute.estimate(plain, (rows(),), method="forwrad"), NoSuchMethodError)
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
        error = raised_by(functools.partial(call, plain, options), InvalidOptionError)
        assert issubclass(type(error), ValueError)
        assert error.option == option


def test_a_plan_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    call = lambda: aten_recompute.lower(scripted_copy(Residual()), plan=str(tmp_path / "plan.json"))  # noqa: E731
    assert raised_by(call, InvalidOptionError).option == "plan"


def test_a_rule_that_cannot_be_registered() -> None:
    def backward(grad: Tensor) -> Tensor:
        return grad

    def fail() -> None:
        aten_recompute.register_rule("nobody::knows", backward=backward)

    error = raised_by(fail, InvalidRuleError)
    assert issubclass(type(error), ValueError)
    assert error.op == "nobody::knows"


def test_a_problem_without_a_plan() -> None:
    planned = lowered_copy(Residual(), "none", profile=True)
    planned(rows())
    problem = aten_recompute.problems(planned)[0]
    error = raised_by(lambda: aten_recompute.plan_problem(problem, 1000), BudgetUnreachableError)
    assert error.limit_bytes == 1000
    assert aten_recompute.plan_problem(problem, error.smallest_peak_bytes)["peak_bytes"] == error.smallest_peak_bytes


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x)
        print("between")
        return torch.tanh(h)


def test_other_errors_of_the_library_have_the_base_class(capfd: pytest.CaptureFixture[str]) -> None:
    module = lowered_copy(Broken(), "all", fullgraph=True)
    error = raised_by(lambda: module(rows().requires_grad_()), aten_recompute.Error)
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
    error = raised_by(lambda: lowered()(rows()), BudgetUnreachableError)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is BudgetUnreachableError
    assert str(copy) == str(error)
    assert copy.smallest_peak_bytes == error.smallest_peak_bytes
