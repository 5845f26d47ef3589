#!/usr/bin/env python3
"""Measures how much of a step's time goes into convolutions and matrix products, and how much into everything else.

    python benchmarks/kernels.py --models unet,densenet121

Convolutions and products are library calls in eager PyTorch, in torch.compile and in ours. For convolutions,
torch.compile lays images out channels last (unless TORCHINDUCTOR_LAYOUT_OPTIMIZATION=0), and it fuses the operators
between them (normalizations, activations, pooling, copies) into generated kernels. The configurations take turns of one
step, each under torch.profiler. The script prints the medians of the profiler's times, in milliseconds.
"""

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from tqdm import tqdm

import aten_recompute
from benchmarks import models, peers
from benchmarks.arguments import choice_list, positive

# Parts of the names under which the profiler lists these calls, in the forward and the backward.
_LIBRARY_CALLS = ("convolution", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "linear_pointwise")

WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "eager": lambda module: module,
    "torch.compile": peers.inductor(1.0),
    "none": lambda module: aten_recompute.lower(torch.jit.script(module), "none"),
}


def split(step: Callable[[], object]) -> tuple[float, float]:
    """Returns the milliseconds of one step in convolutions and products, and in everything else."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step()
    library, rest = 0.0, 0.0
    for event in profiler.key_averages():
        milliseconds = event.self_cpu_time_total / 1e3
        if any(part in event.key for part in _LIBRARY_CALLS):
            library += milliseconds
        else:
            rest += milliseconds
    return library, rest


def measure(model: str, size: str, repeats: int) -> dict[str, tuple[float, float]]:
    """Returns, for each of `WAYS`, the medians of what `split` returns."""
    workload = models.make(model, size)
    steps = {}
    for way, prepare in WAYS.items():
        module = prepare(workload.module)
        steps[way] = lambda module=module: workload.step(module)
        for _ in range(2):  # compiles, and warms up
            steps[way]()
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in tqdm(range(repeats), desc=model, unit="round", disable=None):
        for way, step in steps.items():
            times[way].append(split(step))
    return {
        way: (statistics.median(library for library, _ in found), statistics.median(rest for _, rest in found))
        for way, found in times.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=choice_list(models.NAMES), default=models.NAMES, metavar="A,B")
    parser.add_argument("--size", choices=models.SIZES, default="full", help="of the models (default full)")
    parser.add_argument("--repeats", type=positive, default=7, help="measured steps of each (default 7)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    print(f"{'':<14}{'':<16}{'conv. and products, ms':>24}{'the rest, ms':>14}")
    for name in arguments.models:
        for way, (library, rest) in measure(name, arguments.size, arguments.repeats).items():
            print(f"{name:<14}{way:<16}{library:>24.1f}{rest:>14.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
