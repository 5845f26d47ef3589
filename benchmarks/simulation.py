"""Calls potentials with ever other numbers of atoms under a budget in bytes, as a simulation or its training does.

    python benchmarks/simulation.py                                   # every potential of `make zoo`, training
    python benchmarks/simulation.py painn_forces --inference --budget 0.4 --calls 1000 --largest 200

The budget is a share of what eager PyTorch takes for the largest system; it is given in bytes, with ``exact=False``.
For each potential a row says how many calls took more than the budget, how many plans were made and for how many of
them there was a search, and what the process held after a fifth of the calls, after half and at the end. Energies and
forces of every tenth call are compared with eager PyTorch's. The exit status is 1 if a call took more than the budget,
or if results differ by more than rounding.
"""

import argparse
import gc
import os
import random
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "build" / "zoo")]

# The library reads both when it is loaded.
LOG = os.environ["RECOMPUTE_LOG_FILE"] = tempfile.mkstemp(suffix=".log")[1]
os.environ["RECOMPUTE_LOGS"] = "plan"

import aten_recompute  # noqa: E402
from benchmarks.arguments import positive  # noqa: E402
from benchmarks.forces import BLOCKS, Potential  # noqa: E402
from benchmarks.memory import tracker  # noqa: E402
from benchmarks.resident import status  # noqa: E402

COMPARED = 10  # every such call
ROUNDING = 1e-5  # of the norm of energies and forces, in float32


@dataclass
class Course:
    """What was seen over the calls, in bytes where not said otherwise."""

    budget: int
    peaks: list[int]
    plans: int
    searches: int  # of these plans, how many were searched for and not those of other inputs
    resident: list[int]  # of the process after a fifth of the calls, a half, and all
    difference: float  # of energies and forces from eager PyTorch's, relative to their norm, at most


def plans_made() -> tuple[int, int]:
    """Returns how many plans of regions the process has made, and how many of them are those of other inputs."""
    log = Path(LOG).read_text(encoding="utf-8")
    return log.count("a region keeps"), log.count("is taken again")


def relative_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    a, b = (torch.cat([each.detach().flatten().double() for each in outputs]) for outputs in (ours, theirs))
    return float((a - b).norm() / b.norm())


def systems_of(potential: Potential, smallest: int, largest: int, calls: int) -> list[list[Any]]:
    """Returns the inputs of each call; the largest system comes after a fifth of the calls."""
    draw = random.Random(0)
    atoms = [draw.randint(smallest, largest) for _ in range(calls)]
    atoms[calls // 5] = largest
    inputs: Any = potential.model.inputs
    return [list(inputs(each)) for each in atoms]


def run(name: str, share: float, training: bool, smallest: int, largest: int, calls: int) -> Course:
    potential = Potential(name, largest, training)
    systems = systems_of(potential, smallest, largest, calls)
    potential.inputs = systems[calls // 5]
    eager = potential.make()
    eager_peak = max(potential.measure(eager)[0] for _ in range(3))
    budget = int(share * eager_peak)
    before = plans_made()
    lowered = aten_recompute.lower(potential.script(), "budget", memory_budget=budget, exact=False, accumulate=training)
    course = Course(budget, [], 0, 0, [], 0.0)
    gc.collect()
    gc.freeze()  # the packages make many objects, which every measurement would look at
    for call, system in enumerate(tqdm(systems, desc=name, unit="call", disable=None), 1):
        potential.inputs = system
        course.peaks.append(potential.measure(lowered)[0])
        if call % COMPARED == 0:
            ours, theirs = (list(each(*(value.detach().clone() for value in system))) for each in (lowered, eager))
            course.difference = max(course.difference, relative_difference(ours, theirs))
            del ours, theirs
        if call in (calls // 5, calls // 2, calls):
            course.resident.append(status("VmRSS"))
    plans, taken_again = (now - then for now, then in zip(plans_made(), before, strict=True))
    course.plans, course.searches = plans, plans - taken_again
    return course


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = list(BLOCKS)
    parser.add_argument("potentials", nargs="*", default=known, metavar="POTENTIAL", help=", ".join(known))
    parser.add_argument("--calls", type=positive, default=1000, help="(default: %(default)s)")
    parser.add_argument("--smallest", type=positive, default=20, help="atoms of a system (default: %(default)s)")
    parser.add_argument("--largest", type=positive, default=100, help="atoms of a system (default: %(default)s)")
    parser.add_argument("--inference", action="store_true", help="energies and forces of a module that does not train")
    parser.add_argument("--budget", type=float, default=0.5, help="of eager PyTorch's peak (default: %(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.potentials) - set(known):
        parser.error(f"there is no potential {unknown.pop()!r}; there are {', '.join(known)}")
    if arguments.calls < 5 or arguments.smallest > arguments.largest:
        parser.error("there must be five calls or more, and --smallest must not be greater than --largest")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tracker.install()
    print("| potential | budget | highest peak | calls over it | plans, searched for | resident MiB | off by |")
    print("|---|---|---|---|---|---|---|", flush=True)
    failed = False
    for name in arguments.potentials:
        course = run(
            name, arguments.budget, not arguments.inference, arguments.smallest, arguments.largest, arguments.calls
        )
        over = [call for call, peak in enumerate(course.peaks, 1) if peak > course.budget]
        if over:
            print(f"{name}: over the budget in the calls {', '.join(map(str, over))}", file=sys.stderr)
        resident = ", ".join(f"{each / 2**20:.0f}" for each in course.resident)
        print(
            f"| {name} | {course.budget:,} | {max(course.peaks):,} | {len(over)} of {arguments.calls} "
            f"| {course.plans}, {course.searches} | {resident} | {course.difference:.0e} |",
            flush=True,
        )
        failed = failed or bool(over) or course.difference > ROUNDING
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
