#!/usr/bin/env python3
"""What the first step under a budget costs beyond a later one, in eager steps.

    python benchmarks/first_step.py                          # every model, 5 processes each
    python benchmarks/first_step.py --models gpt,resnet50 --repeats 9 --budget 0.3

Each repetition runs in a process of its own, because a first step loads code and fills caches from which later ones in
the same process would profit. Eager runs three steps, of which the last one counts; then the lowered module runs two.
The time by which its first step is longer than its second one (for lowering the graph, the profile and the search) is
divided by the time of eager's step. The script prints medians over the processes.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from tqdm import tqdm

import aten_recompute
from benchmarks import models
from benchmarks.arguments import choice_list, positive
from benchmarks.measure import find_key


def measure(model: str, budget: float) -> dict[str, float]:
    """Returns the seconds of eager's step, of the first two steps under the budget, the profile and the search."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    workload = models.make(model)

    def step(module: torch.nn.Module) -> float:
        start = time.perf_counter()
        workload.step(module)
        return time.perf_counter() - start

    eager = [step(workload.module) for _ in range(3)][-1]
    lowered = aten_recompute.lower(torch.jit.script(workload.module), "budget", memory_budget=budget, accumulate=True)
    first, second = step(lowered), step(lowered)
    report = aten_recompute.report(lowered)
    return {
        "eager": eager,
        "first": first,
        "second": second,
        "profile": sum(find_key(report, "profile_seconds")),
        "plan": sum(find_key(report, "plan_seconds")),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=choice_list(models.NAMES), default=models.NAMES, metavar="A,B")
    parser.add_argument(
        "--budget", type=float, default=0.5, help="fraction of the peak without recomputation (default 0.5)"
    )
    parser.add_argument("--repeats", type=positive, default=5, help="processes per model (default 5)")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.budget)))
        return 0
    names = options.models

    lines = [
        f"{'model':<12} {'eager ms':>9} {'first ms':>9} {'profile ms':>11} {'plan ms':>8} {'extra eager steps':>18}"
    ]
    with tqdm(total=len(names) * options.repeats, unit="process", disable=None) as progress:
        for name in names:
            runs = []
            for _ in range(options.repeats):
                progress.set_description(name)
                command = [sys.executable, __file__, "--one", name, "--budget", str(options.budget)]
                output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                runs.append(json.loads(output.splitlines()[-1]))
                progress.update()
            median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            extra = statistics.median((run["first"] - run["second"]) / run["eager"] for run in runs)
            lines.append(
                f"{name:<12} {1e3 * median['eager']:>9.0f} {1e3 * median['first']:>9.0f} "
                f"{1e3 * median['profile']:>11.0f} {1e3 * median['plan']:>8.0f} {extra:>18.2f}"
            )
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
