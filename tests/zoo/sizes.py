"""Calls models with ever other sizes: ``python -m zoo.sizes [--calls 1000] [name ...]``.

All sizes should share one or two specializations, and memory should stop growing once the plans are made.
"""

import argparse
import gc
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import aten_recompute

from .compare import step
from .models import MODELS, Inputs
from .models.atoms import molecule


def volume(draw: random.Random) -> Inputs:
    return (torch.randn(1, 1, *(8 * draw.randint(1, 3) for _ in range(3))),)


def species(draw: random.Random) -> Inputs:
    """A batch with all elements, and with molecules of unequal length, so that one path serves all."""
    molecules, atoms = draw.randint(2, 4), draw.randint(5, 9)
    numbers = torch.tensor([[draw.choice((1, 6, 7, 8)) for _ in range(atoms)] for _ in range(molecules)])
    numbers[0, :4] = torch.tensor([1, 6, 7, 8])
    numbers[-1, -1] = -1
    return numbers, torch.randn(molecules, atoms, 3)


def any_species(draw: random.Random) -> Inputs:
    """A batch in which elements may be missing, each of which is a branch that the data decide."""
    molecules, atoms = draw.randint(1, 4), draw.randint(3, 9)
    numbers = torch.tensor([[draw.choice((1, 6, 7, 8)) for _ in range(atoms)] for _ in range(molecules)])
    return numbers, torch.randn(molecules, atoms, 3)


def graph(draw: random.Random) -> Inputs:
    nodes = draw.randint(20, 300)
    return torch.randn(nodes, 32), torch.randint(0, nodes, (2, draw.randint(50, 2000)))


def tokens(draw: random.Random) -> Inputs:
    batch, length = draw.randint(2, 8), draw.randint(4, 48)
    return torch.randn(batch, length, 64), None, torch.arange(length).expand(batch, length) > length - 3


@dataclass(frozen=True)
class Sizes:
    model: str
    inputs: Callable[[random.Random], Inputs]
    most: int = 2  # specializations that they may need


SIZES = {
    "segresnet": Sizes("monai_segresnet", volume),
    "painn": Sizes("painn", lambda draw: molecule(draw.randint(4, 30))),
    "torchani": Sizes("torchani", species),
    "torchani_any_species": Sizes("torchani", any_species, 32),
    "pyg_gcn": Sizes("pyg_gcn", graph),
    "transformer_encoder": Sizes("transformer_encoder_mask", tokens),
}


@dataclass
class Course:
    """What was seen over the calls. Memory is the process's, in bytes, with the number of calls before it."""

    specializations: int
    compiled_regions: int
    plans: int  # for several regions together
    memory: dict[int, int]
    milliseconds: float  # the median of the last quarter of the calls

    def __str__(self) -> str:
        memory = ", ".join(f"{size / 2**20:.0f} MiB after {calls}" for calls, size in self.memory.items())
        return (
            f"{self.specializations} specializations, {self.compiled_regions} compiled regions, {self.plans} plans; "
            f"{memory}; {self.milliseconds:.1f} ms per step"
        )


def resident_bytes() -> int:
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def call_with_sizes(name: str, calls: int, **spec: Any) -> Course:
    """Runs steps under a budget, or with the options given; looks at memory after a fifth of them and at the end."""
    draw = random.Random(0)
    torch.manual_seed(0)
    lowered = aten_recompute.lower(
        MODELS[SIZES[name].model].program(),
        **(spec or {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest"}),
    )
    memory: dict[int, int] = {}
    seconds: list[float] = []
    for call in range(1, calls + 1):
        inputs = SIZES[name].inputs(draw)
        start = time.perf_counter()
        step(lowered, inputs, call)
        seconds.append(time.perf_counter() - start)
        if call in (calls // 5, calls // 2, calls):
            memory[call] = resident_bytes()
    specializations = [
        each for method in aten_recompute.report(lowered)["methods"] for each in method["specialisations"]
    ]
    regions = [region for each in specializations for region in each["regions"]]
    return Course(
        len(specializations),
        sum(len(region["variants"]) for region in regions),
        sum(len(each["plans"]) for each in specializations),
        memory,
        1000 * statistics.median(seconds[-max(1, calls // 4) :]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo.sizes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(SIZES)} (default all)")
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(SIZES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(SIZES)}")
    warnings.filterwarnings("ignore")
    too_many = False
    for name in options.names or SIZES:
        course = call_with_sizes(name, options.calls)
        too_many = too_many or course.specializations > SIZES[name].most
        print(f"{name}: {course}", flush=True)
    return int(too_many)


if __name__ == "__main__":
    sys.exit(main())
