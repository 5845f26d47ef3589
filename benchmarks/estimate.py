"""Compares what ``aten_recompute.estimate`` predicts with what training steps measure.

    python benchmarks/estimate.py                     # every model, without recomputation and at 0.5 and 0.25
    python benchmarks/estimate.py --models gpt --budgets 0.4

Each model is estimated in a process of its own, in which nothing ran before, with parameters and inputs on the meta
device; then steps are measured in another one.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import models  # noqa: E402


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def estimate(name: str, size: str, budgets: list[float]) -> dict[str, object]:
    import aten_recompute

    workload = models.make(name, size).to("meta")
    module = torch.jit.script(workload.module)
    before, began = resident_bytes(), time.perf_counter()
    result = aten_recompute.estimate(module, workload.inputs, budgets, release_outputs=workload.release_outputs)
    return {
        **result,
        "elapsed_seconds": time.perf_counter() - began,
        "resident_bytes": resident_bytes() - before,
    }


def measure(name: str, size: str, budget: float | None) -> int | None:
    """Returns the peak of a step in bytes; None if no plan keeps the budget."""
    import aten_recompute
    from benchmarks.memory import tracker

    workload = models.make(name, size)
    options: Any = {} if budget is None else {"memory_budget": budget, "release_outputs": workload.release_outputs}
    lowered = aten_recompute.lower(
        torch.jit.script(workload.module), "none" if budget is None else "budget", arena="off", **options
    )
    tracker.install()
    try:
        for _ in range(3):
            lowered.zero_grad(set_to_none=True)
            with tracker.measure_peak() as peak:
                loss = workload.loss(lowered)
                loss.backward()
                del loss
    except aten_recompute.BudgetUnreachableError:
        return None
    return peak.bytes


def in_own_process(arguments: list[str]) -> object:
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=models.NAMES, choices=models.NAMES)
    parser.add_argument("--size", default="full", choices=models.SIZES)
    parser.add_argument("--budgets", nargs="*", type=float, default=[0.5, 0.25])
    parser.add_argument("--one", choices=["estimate", "measure"], help="what this process is to do; prints JSON")
    options = parser.parse_args()
    if options.one == "estimate":
        print(json.dumps(estimate(options.models[0], options.size, options.budgets)))
        return
    if options.one == "measure":
        print(json.dumps(measure(options.models[0], options.size, next(iter(options.budgets), None))))
        return
    print("model | budget | predicted MiB | measured MiB | predicted / measured | s | resident MiB")
    for name in options.models:
        common = ["--size", options.size, "--models", name]
        result = in_own_process([*common, "--one", "estimate", "--budgets", *map(str, options.budgets)])
        assert isinstance(result, dict)
        rows = [(None, result["unplanned_peak_bytes"])]
        rows += [(each["budget"], each.get("peak_bytes")) for each in result["budgets"]]
        for budget, predicted in rows:
            given: list[str] = [] if budget is None else ["--budgets", str(budget)]
            measured = in_own_process([*common, "--one", "measure", *(given or ["--budgets"])])
            cells = [f"{value / 2**20:.1f}" if value else "not reachable" for value in (predicted, measured)]
            ratio = f"{predicted / measured:.3f}" if predicted and measured else ""
            cost = (
                [f"{result['elapsed_seconds']:.2f}", f"{result['resident_bytes'] / 2**20:.0f}"]
                if budget is None
                else ["", ""]
            )
            print(" | ".join([name, str(budget or "none"), *cells, ratio, *cost]), flush=True)


if __name__ == "__main__":
    main()
