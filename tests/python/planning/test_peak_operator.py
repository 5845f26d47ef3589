"""Errors, reports and the log name the operator at the peak."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import BudgetUnreachableError, PeakOperator
from aten_recompute._report_types import Variant
from benchmarks import models
from support.helpers import lowered_copy, saved_and_loaded

OPERATOR = re.compile(r"aten(_recompute)?::\w+")  # some are the library's own

TINY: dict[str, Any] = {"memory_budget": 1000, "cost_model": "flops"}


class Convolutions(nn.Module):
    """Two convolutions. The gradients of the second one need more than anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(3, 4, 3, padding=1)
        self.wide = nn.Conv2d(4, 64, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(torch.relu(self.narrow(x))).mean()


def images() -> Tensor:
    return torch.rand(2, 3, 32, 32)


def total_bytes(peak: PeakOperator) -> int:
    return peak["operand_bytes"] + peak["result_bytes"] + peak["workspace_bytes"] + peak["other_bytes"]


def refusal(call: torch.jit.ScriptModule, *inputs: Tensor) -> BudgetUnreachableError:
    with pytest.raises(BudgetUnreachableError) as raised:
        call(*inputs)
    return raised.value


def variant_of(lowered: torch.jit.ScriptModule) -> Variant:
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (region,) = specialization["regions"]
    return region["variants"][-1]


def test_an_error_names_the_convolution_with_its_layer_and_line() -> None:
    error = refusal(lowered_copy(Convolutions(), "budget", **TINY), images())
    peak = error.peak_operator
    assert peak is not None
    assert peak["layer"] == "wide"
    assert "conv" in peak["name"]
    assert re.search(r"conv\.py:\d+$", peak["source"])
    assert total_bytes(peak) == error.smallest_peak_bytes
    line = peak["source"].rsplit("/", 1)[-1]
    assert f"; the peak is at {peak['name']} of wide ({line}): operands " in str(error)
    assert re.search(r"operands .*, results .*, workspace .*, other values ", str(error))


def test_an_operator_that_is_too_large_alone_cannot_be_helped_by_a_plan() -> None:
    error = refusal(lowered_copy(Convolutions(), "budget", **TINY), images())
    assert "so no plan can keep the budget: a smaller batch or smaller inputs would help" in str(error)
    near = lowered_copy(Convolutions(), "budget", memory_budget=error.smallest_peak_bytes - 1, cost_model="flops")
    assert isinstance(refusal(near, images()), ValueError)


class Weights(nn.Module):
    """Its parameters, and their gradients, are much larger than its activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).sum()


def test_gradients_that_dominate_are_named_with_the_option_that_helps() -> None:
    x = torch.rand(2, 64)
    smallest = refusal(lowered_copy(Weights(), "budget", **TINY), x).smallest_peak_bytes
    near = lowered_copy(Weights(), "budget", memory_budget=smallest - 1, cost_model="flops")
    assert 'of the other values are gradients; those of parameters do not count with "accumulate": true' in str(
        refusal(near, x)
    )
    lowered_copy(Weights(), "budget", memory_budget=smallest - 1, cost_model="flops", accumulate=True)(x)


def test_the_error_of_a_gpt_names_a_layer_of_it() -> None:
    workload = models.make("gpt", "small")
    lowered = aten_recompute.lower(torch.jit.script(workload.module), "budget", **TINY)
    with pytest.raises(BudgetUnreachableError) as raised:
        workload.step(lowered)
    peak = raised.value.peak_operator
    assert peak is not None
    assert OPERATOR.fullmatch(peak["name"])
    assert peak["layer"] in dict(workload.module.named_modules())
    assert re.search(r"\.py:\d+$", peak["source"])
    assert total_bytes(peak) == raised.value.smallest_peak_bytes


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.lowered_only
def test_a_report_has_the_operator_at_the_peak(loaded: bool) -> None:
    lowered = lowered_copy(Convolutions(), "none", profile=True)
    if loaded:
        lowered = saved_and_loaded(lowered)
    lowered(images()).backward()
    variant = variant_of(lowered)
    peak = variant["peak_operator"]
    assert peak["layer"] == "wide"
    assert OPERATOR.fullmatch(peak["name"])
    assert total_bytes(peak) == variant["predicted_peak_bytes"]


def test_without_a_profile_the_operator_has_no_name() -> None:
    lowered = lowered_copy(Convolutions(), "all")
    lowered(images()).backward()
    assert variant_of(lowered)["peak_operator"] == {
        "name": "",
        "layer": "",
        "source": "",
        "operand_bytes": 0,
        "result_bytes": 0,
        "workspace_bytes": 0,
        "other_bytes": 0,
    }


class TwoRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 256)
        self.act = nn.Tanh()
        self.second = nn.Linear(256, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.first(x))
        print("between")
        return self.act(self.second(h))


def test_the_plan_of_a_whole_method_has_the_operator_at_its_peak() -> None:
    lowered = lowered_copy(TwoRegions(), "budget", memory_budget=1.0, cost_model="flops")
    lowered(torch.rand(64, 16)).sum().backward()
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    plan = specialization["plans"][-1]
    peak = plan["peak_operator"]
    assert peak["layer"] in ("first", "act", "second")
    assert total_bytes(peak) == plan["predicted_peak_bytes"]
    error = refusal(lowered_copy(TwoRegions(), "budget", **TINY), torch.rand(64, 16))
    assert error.peak_operator is not None
    assert error.peak_operator["layer"] in ("first", "act", "second")
    assert f"the peak is at {error.peak_operator['name']} of " in str(error)


def test_the_log_names_the_operator_at_the_peak(capfd: pytest.CaptureFixture[str]) -> None:
    aten_recompute.set_logs(plan=True)
    try:
        lowered = lowered_copy(Convolutions(), "budget", memory_budget=1.0, cost_model="flops")
        lowered(images()).backward()
    finally:
        aten_recompute.set_logs("")
    name = variant_of(lowered)["peak_operator"]["name"]
    assert f"; the peak is at {name} of wide (conv.py:" in capfd.readouterr().err


def test_the_warning_for_a_plan_near_the_smallest_peak_names_the_operator(capfd: pytest.CaptureFixture[str]) -> None:
    lowered = lowered_copy(Convolutions(), "budget", unreachable="leanest", **TINY)
    lowered(images()).backward()
    assert re.search(
        r"cannot be kept .*; the peak is at \w+::\w+ of wide .*; a plan near that runs", capfd.readouterr().err
    )


def test_places_are_in_the_planning_problem_and_do_not_change_its_plans() -> None:
    lowered = lowered_copy(Convolutions(), "none", profile=True)
    lowered(images())
    (problem,) = aten_recompute.problems(lowered)
    nodes = problem["nodes"]
    layers = {problem["layers"][index] for index in nodes["layer"] if index >= 0}
    assert layers == {"narrow", "wide"}
    assert all(index < len(problem["sources"]) for index in nodes["source"])
    # Files of earlier versions have no places.
    old = {key: value for key, value in problem.items() if key not in ("layers", "sources")}
    old["nodes"] = {key: value for key, value in nodes.items() if key not in ("layer", "source")}
    limit = 10**9
    assert aten_recompute.plan_problem(old, limit)["steps"] == aten_recompute.plan_problem(problem, limit)["steps"]
