"""The exact planner of benchmarks/optimal agrees with brute force and with the simulator of the library."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("highspy")

import aten_recompute
from benchmarks.optimal import problems
from benchmarks.optimal.milp import Model
from benchmarks.optimal.simulate import Step, simulate

NO_LIMIT = 2**62


def small_problem() -> dict[str, Any]:
    """Makes a problem whose last operator needs much memory, so that each value freed before it lowers the peak."""
    net = problems.Net()
    a = net.op("linear", [net.input(4)], 6, 5)
    b = net.op("wide", [a], 8, 2)
    c = net.op("linear", [a, b], 5, 4)
    return net.problem(net.op("sum", [c], 1, 1, problems.OUTPUT, workspace=40))


def every_schedule(problem: dict[str, Any], early: bool) -> Iterator[list[Step]]:
    """Yields a schedule for every choice of the nodes that each stage recomputes."""
    num_forward, num_nodes = problem["num_forward"], problem["num_nodes"]
    inputs, outputs = problem["nodes"]["inputs"], problem["nodes"]["outputs"]
    stages = range(1, num_nodes - num_forward + 1)
    choices = [choice for size in range(num_forward) for choice in itertools.combinations(range(num_forward - 1), size)]
    for again in itertools.product(choices, repeat=len(stages)):
        steps: list[Step] = [(node, 0) for node in range(num_forward)]
        read_in_time = True
        for t, nodes in zip(stages, again, strict=True):
            reads = set(inputs[num_forward + t - 1]).union(*(inputs[node] for node in nodes))
            read_in_time = read_in_time and all(outputs[node][0] in reads for node in nodes)
            steps += [(node, t) for node in nodes] + [(num_forward + t - 1, t)]
        if early or read_in_time:
            yield steps


@pytest.mark.parametrize("early", [False, True])
def test_the_solver_finds_the_optimum_of_brute_force(early: bool) -> None:
    problem = small_problem()
    found = sorted({simulate(problem, steps) for steps in every_schedule(problem, early)})
    model = Model(problem, early=early)
    base = problems.base_seconds(problem)
    costs = set()
    for limit in sorted({peak for peak, _ in found}):
        best = min(seconds for peak, seconds in found if peak <= limit)
        solution = model.solve(limit, time_limit=20.0)
        assert solution.proven
        assert solution.recompute_seconds is not None
        assert solution.steps is not None
        assert base + solution.recompute_seconds == pytest.approx(best)
        assert simulate(problem, solution.steps)[0] <= limit
        costs.add(round(best, 9))
    assert len(costs) > 2  # there is a choice between memory and time
    assert model.solve(found[0][0] - 1, time_limit=20.0).status == "infeasible"


@pytest.mark.parametrize("name", list(problems.PROBLEMS))
def test_search_simulator_and_program_agree_on_peaks(name: str) -> None:
    problem = problems.make(name)
    model = Model(problem)
    unplanned = aten_recompute.plan_problem(problem, NO_LIMIT)
    assert unplanned["recompute_seconds"] == pytest.approx(0.0)
    assert unplanned["peak_bytes"] == unplanned["unplanned_peak_bytes"]
    smallest = unplanned["smallest_peak_bytes"]
    for limit in {smallest, (smallest + unplanned["peak_bytes"]) // 2, unplanned["peak_bytes"]}:
        plan = aten_recompute.plan_problem(problem, limit)
        assert plan["peak_bytes"] <= limit
        peak, seconds = simulate(problem, plan["steps"])
        assert peak == plan["peak_bytes"]
        assert seconds == pytest.approx(plan["seconds"])
        x = model.assignment(plan["steps"])
        assert not model.violated(x)
        assert model.peak_bytes(x) == plan["peak_bytes"]


def test_the_solver_is_at_least_as_good_as_the_search() -> None:
    problem = problems.make("unet")
    limit = int(0.6 * aten_recompute.plan_problem(problem, NO_LIMIT)["peak_bytes"])
    plan = aten_recompute.plan_problem(problem, limit)
    model = Model(problem)
    solution = model.solve(limit, time_limit=20.0, start=model.assignment(plan["steps"]))
    assert solution.recompute_seconds is not None
    assert solution.steps is not None
    peak, seconds = simulate(problem, solution.steps)
    assert peak <= limit
    assert seconds == pytest.approx(problems.base_seconds(problem) + solution.recompute_seconds)
    assert solution.bound_seconds <= solution.recompute_seconds + 1e-9 <= plan["recompute_seconds"] + 2e-9


def test_the_search_reaches_the_smallest_peak_of_attention_blocks() -> None:
    # Three tensors of the size of a block's input are in memory at the same time. To free the input of a block requires
    # recomputing the whole block before it, whose values have to be freed again in the same move of the search.
    problem = problems.make("attention")
    limit = int(0.4 * aten_recompute.plan_problem(problem, NO_LIMIT)["peak_bytes"])
    plan = aten_recompute.plan_problem(problem, limit)
    assert plan["peak_bytes"] <= limit
    peak, _ = simulate(problem, plan["steps"])
    assert peak == plan["peak_bytes"]


def test_an_unsupported_problem_raises() -> None:
    problem = problems.make("chain")
    problem["nodes"]["is_view"][3] = 1
    with pytest.raises(ValueError, match="does not support views"):
        Model(problem)


def test_plan_problem_raises_for_unreachable_limits_and_invalid_problems() -> None:
    problem = problems.make("chain")
    with pytest.raises(ValueError, match="smallest that can be reached"):
        aten_recompute.plan_problem(problem, 1)
    with pytest.raises(ValueError, match="not a planning problem"):
        aten_recompute.plan_problem({}, 1)
