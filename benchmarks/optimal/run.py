#!/usr/bin/env python3
"""Compares the plans of strategy `budget` with optimal plans, on small graphs of many shapes.

    python benchmarks/optimal/run.py                          # takes about ten minutes
    python benchmarks/optimal/run.py --problems chain,unet --limits 0.6 --time-limit 120

Each problem (problems.py) is planned under limits that are fractions of its peak without recomputation, by the search
and by a mixed-integer program (milp.py) that HiGHS solves. If the solver runs out of time, the table has its bound and
the best plan that it found; the optimum lies in between. A limit under which neither finds a plan is left out.

Every plan is replayed by an independent simulator (simulate.py), which has to find the same peak and time. Every plan
of the search also has to be a solution of the program, with the same peak.

The script prints a table and writes ``benchmarks/out/optimal.json``. It exits with 1 if one of these checks failed, or
if a plan of the search was better than the proven optimum.
"""

import argparse
import contextlib
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

from tqdm import tqdm

import aten_recompute
from benchmarks.arguments import choice_list, shares
from benchmarks.optimal import problems
from benchmarks.optimal.milp import Model, Solution
from benchmarks.optimal.simulate import Step, simulate

LIMITS = [0.8, 0.6, 0.4]
# A bound counts as the optimum if it is off by at most this share of the time without recomputation.
GAP = 1e-4
# If ours takes more than this times the time of the best plan, the differences of the two plans are printed.
FAR = 1.03


@dataclass
class Result:
    problem: str
    limit: float  # as a share of the peak without recomputation
    limit_bytes: int
    base_seconds: float
    status: str  # of the solver: optimal, feasible, infeasible, unknown
    best_seconds: float | None  # of recomputation in the solver's plan
    bound_seconds: float  # no plan recomputes for less time
    our_seconds: float | None  # of recomputation in the search's plan; None if it found no plan
    best_peak_bytes: int | None
    our_peak_bytes: int | None
    solver_seconds: float
    search_seconds: float | None
    num_binaries: int
    num_rows: int
    best_steps: list[Step] | None
    our_steps: list[Step] | None
    errors: list[str]

    @property
    def ratio(self) -> float | None:
        """The whole time of our plan, divided by that of the best known plan."""
        if self.our_seconds is None or self.best_seconds is None:
            return None
        return (self.base_seconds + self.our_seconds) / (self.base_seconds + self.best_seconds)

    @property
    def ratio_to_bound(self) -> float | None:
        if self.our_seconds is None:
            return None
        return (self.base_seconds + self.our_seconds) / (self.base_seconds + self.bound_seconds)


def check(
    problem: dict[str, Any], who: str, steps: Sequence[Step], peak_bytes: int, seconds: float, limit_bytes: int
) -> list[str]:
    peak, total = simulate(problem, steps)
    again = total - problems.base_seconds(problem)
    wrong = []
    if peak != peak_bytes:
        wrong.append(f"{who}: claims a peak of {peak_bytes} bytes, replayed {peak}")
    if peak > limit_bytes:
        wrong.append(f"{who}: a peak of {peak} bytes over the limit of {limit_bytes}")
    if abs(again - seconds) > 1e-9:
        wrong.append(f"{who}: claims {seconds} s of recomputation, replayed {again}")
    return wrong


def compare(name: str, model: Model, limit: float, unplanned_peak: int, time_limit: float) -> Result:
    problem = model.problem
    base = problems.base_seconds(problem)
    limit_bytes = int(limit * unplanned_peak)
    errors: list[str] = []
    ours = start = None
    with contextlib.suppress(ValueError):  # which says that no plan is that small
        ours = aten_recompute.plan_problem(problem, limit_bytes)
    if ours is not None:
        errors += check(problem, "ours", ours["steps"], ours["peak_bytes"], ours["recompute_seconds"], limit_bytes)
        start = model.assignment(ours["steps"])
        if model.violated(start):
            errors.append("ours: the program does not allow it")
        if model.peak_bytes(start) != ours["peak_bytes"]:
            errors.append(f"ours: a peak of {ours['peak_bytes']} bytes, the program says {model.peak_bytes(start)}")
    solution: Solution = model.solve(limit_bytes, time_limit, start, GAP * base)
    best_peak = None
    if solution.steps is not None and solution.recompute_seconds is not None:
        # The assignment is made anew: where the solver has memory to spare, its own keeps values that nobody reads.
        best_peak = model.peak_bytes(model.assignment(solution.steps))
        errors += check(problem, "best", solution.steps, best_peak, solution.recompute_seconds, limit_bytes)
    if ours is not None and (
        solution.status == "infeasible" or ours["recompute_seconds"] < solution.bound_seconds - 2 * GAP * base
    ):
        errors.append("ours is better than what the program allows")
    return Result(
        name,
        limit,
        limit_bytes,
        base,
        solution.status,
        solution.recompute_seconds,
        solution.bound_seconds,
        ours and ours["recompute_seconds"],
        best_peak,
        ours and ours["peak_bytes"],
        solution.solver_seconds,
        ours and ours["search_seconds"],
        solution.num_binaries,
        solution.num_rows,
        solution.steps,
        ours and ours["steps"],
        errors,
    )


def format_table(results: Sequence[Result]) -> str:
    def percent(seconds: float | None, base: float) -> str:
        return "none" if seconds is None else f"{100 * seconds / base:.2f} %"

    lines = [
        (
            f"{'problem':<12} {'limit':>5} {'optimum':>9} {'bound':>9} {'ours':>9} {'time':>7} {'solver s':>9} "
            f"{'search s':>9}"
        )
    ]
    for each in results:
        ratio = "" if each.ratio is None else f"{each.ratio:.4f}"
        search = "" if each.search_seconds is None else f"{each.search_seconds:.3f}"
        mark = "" if each.status == "optimal" else f"  not proven: at most {each.ratio_to_bound or 0:.4f}"
        mark = "  no plan found by the solver" if each.status == "unknown" else mark
        lines.append(
            f"{each.problem:<12} {each.limit:>5.2f} {percent(each.best_seconds, each.base_seconds):>9} "
            f"{percent(each.bound_seconds, each.base_seconds):>9} {percent(each.our_seconds, each.base_seconds):>9} "
            f"{ratio:>7} {each.solver_seconds:>9.1f} {search:>9}{mark}"
        )
    return "\n".join(lines)


def format_difference(problem: dict[str, Any], result: Result) -> str:
    """Describes which values one of the two plans recomputes more often than the other, and for which stages."""

    def runs(steps: Sequence[Step] | None) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for node, slot in steps or []:
            if slot > 0 and node < problem["num_forward"]:
                found.setdefault(node, []).append(slot)
        return found

    names, outputs = problem["values"]["name"], problem["nodes"]["outputs"]
    ours, best = runs(result.our_steps), runs(result.best_steps)
    lines = [f"{result.problem} at {result.limit:g}: ours takes {result.ratio:.4f} of the time of the best plan"]
    for node in range(problem["num_forward"]):
        if ours.get(node) == best.get(node):
            continue
        size = problem["storages"]["bytes"][outputs[node][0]] / 2**20
        lines.append(
            f"  {names[outputs[node][0]]:<14} {size:>5.0f} MiB {1e3 * problem['nodes']['seconds'][node]:>4.0f} ms  "
            f"ours for stages {ours.get(node, [])}, best for {best.get(node, [])}"
        )
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    ratios = [each.ratio for each in results if each.ratio is not None]
    if not ratios:
        return "nothing to compare"
    proven = Counter(each.status == "optimal" for each in results)
    product = 1.0
    for ratio in ratios:
        product *= ratio ** (1 / len(ratios))
    lines = [
        (
            f"{proven[True]} of {len(results)} were solved to optimality. Whole time of ours to that of the best plan: "
            f"geometric mean {product:.4f}, {sum(ratio <= 1.001 for ratio in ratios)} of {len(ratios)} equal (0.1 %), "
            f"{sum(ratio > FAR for ratio in ratios)} more than {FAR - 1:.0%} above."
        )
    ]
    missed = [each for each in results if each.our_seconds is None and each.best_seconds is not None]
    if missed:
        names = ", ".join(f"{each.problem} at {each.limit:g}" for each in missed)
        lines.append(f"Ours found no plan where there is one: {names}.")
    return "\n".join(lines)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the budget search with optimal plans.")

    parser.add_argument(
        "--problems", type=choice_list(list(problems.PROBLEMS)), default=list(problems.PROBLEMS), metavar="A,B"
    )
    parser.add_argument(
        "--limits", type=shares, default=LIMITS, metavar="X,Y", help="shares of the peak (default 0.8,0.6,0.4)"
    )
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for the solver (default 60)")
    parser.add_argument(
        "--early", action="store_true", help="let plans compute values ahead of time, which the backend does not"
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "out" / "optimal.json")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    results: list[Result] = []
    made = {name: problems.make(name) for name in options.problems}
    with tqdm(total=len(made) * len(options.limits), unit="plan", dynamic_ncols=True) as progress:
        for name, problem in made.items():
            model = Model(problem, early=options.early)
            unplanned_peak = aten_recompute.plan_problem(problem, 2**62)["unplanned_peak_bytes"]
            for limit in options.limits:
                progress.set_description(f"{name} {limit:g}")
                result = compare(name, model, limit, unplanned_peak, options.time_limit)
                if result.our_seconds is not None or result.status != "infeasible":
                    results.append(result)
                progress.update()
        progress.set_description("done")

    print(f"\n{format_table(results)}\n\n{summary(results)}")
    for each in results:
        if each.ratio is not None and each.ratio > FAR:
            print(f"\n{format_difference(made[each.problem], each)}")
    errors = [f"{each.problem} at {each.limit:g}: {error}" for each in results for error in each.errors]
    for error in errors:
        print(f"WRONG: {error}")
    report = [{**asdict(each), "ratio": each.ratio, "ratio_to_bound": each.ratio_to_bound} for each in results]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(
        json.dumps({"early": options.early, "time_limit": options.time_limit, "results": report}) + "\n"
    )
    print(f"\nThe results are in {options.out}.")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
