#!/usr/bin/env python3
"""How much memory the process takes in a training step, beside what the plan predicts, with its page faults.

    python benchmarks/resident.py                                  # every model, budgets 0.5, 0.25 and 0.15
    python benchmarks/resident.py --models gpt --budgets 0.25 --arena off
    python benchmarks/resident.py --first                          # the first step of FIRST_STEPS, beside its limit

Every figure is read from Linux (``/proc/self/status``), with the C library's allocator as it comes. Two processes
measure each configuration, both with gradients that exist already. One runs the warm-up, gives back what it can, and
reads the resident memory: that is the rest. The other reads the highest resident memory of its first step, which
compiles, finishes the warm-up, and then does the same for steps without giving anything back. Budgets are shares of the
peak without recomputation.

The columns: bytes that the plan predicts; the process's peak above the rest in the first step, and in later ones with
its quotient by the prediction; what stays resident after a step, as a share of the rest; minor page faults per step;
and the time of a step, which is the median over the steps of one process and says little on a busy machine.
"""

import argparse
import ctypes
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from tqdm import tqdm

import aten_recompute
from benchmarks import models
from benchmarks.arguments import choice_list, positive, shares
from benchmarks.measure import find_key
from benchmarks.networks.gpt import GPT
from benchmarks.networks.mixture import Mixture
from benchmarks.networks.mlp import MLP
from benchmarks.networks.wavenet import WaveNet

Arena = Literal["keep", "release", "off"]
MODELS = ("gpt", "resnet50", "mlp", "unet", "densenet121", "transformer")


def _gpt12() -> models.Workload:
    text = torch.randint(1000, (2, 129))
    module = GPT(blocks=12, width=768, heads=12, context=128, vocabulary=1000)
    return models.Workload("gpt12", module, (text[:, :-1].contiguous(), text[:, 1:].contiguous()))


# Networks that no other benchmark trains: large, with rows that data choose, of long sequences, and deep.
OTHERS: dict[str, Callable[[], models.Workload]] = {
    "gpt12": _gpt12,
    "mixture": lambda: models.Workload("mixture", Mixture(), (torch.randn(4096, 256),)),
    "wavenet": lambda: models.Workload("wavenet", WaveNet(), (torch.rand(4, 8000) * 2 - 1,)),
    "mlp400": lambda: models.Workload(
        "mlp400", MLP(layers=400, width=128), (torch.randn(2048, 128),), lambda output: output.square().mean()
    ),
}
NAMES = (*models.NAMES, *OTHERS)
FIRST_STEPS = [(name, budget) for name in models.NAMES for budget in ("0.5", "0.25")] + [
    ("gpt12", "0.1"), ("gpt12", "0.3"), ("mixture", "0.25"), ("wavenet", "0.3"), ("mlp400", "0.1"),
]  # fmt: skip


def first_step_limit(predicted: float) -> float:
    """Returns what a first step may take above the rest: the plan's bytes, and some for its search and libraries."""
    return 1.15 * predicted + (64 << 20)


def status(key: str) -> int:
    """Returns an entry of ``/proc/self/status``, such as VmRSS, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise KeyError(key)


def reset_peak() -> None:
    """Lets VmHWM start from the present resident memory."""
    Path("/proc/self/clear_refs").write_text("5")


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def prepare(model: str, batch: int, budget: str, arena: Arena) -> tuple[Any, Callable[[], None]]:
    """Returns the module and a function that runs one training step; `budget` is a share, "none" or "eager"."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    torch.manual_seed(0)
    workload = OTHERS[model]() if model in OTHERS else models.make(model)
    workload.module.train()
    workload.inputs = tuple(tensor.repeat(batch, *[1] * (tensor.dim() - 1)) for tensor in workload.inputs)
    module: Any = workload.module
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if budget == "none":
        module = aten_recompute.lower(torch.jit.script(module), "none", profile=True, accumulate=True, arena=arena)
    elif budget != "eager":
        module = aten_recompute.lower(
            torch.jit.script(module),
            "budget",
            memory_budget=float(budget),
            accumulate=True,
            unreachable="leanest",
            release_outputs=workload.release_outputs,
            arena=arena,
        )

    def step() -> None:
        workload.loss(module).backward()

    return module, step


def measure(model: str, batch: int, budget: str, arena: Arena, steps: int) -> dict[str, float]:
    module, step = prepare(model, batch, budget, arena)
    gc.collect()
    reset_peak()
    step()
    first = status("VmHWM")
    for _ in range(3 if steps else 0):
        step()
    gc.collect()
    reset_peak()
    before = faults()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    result: dict[str, float] = {
        "first": first,
        "peak": status("VmHWM"),
        "after": status("VmRSS"),
        "faults": (faults() - before) / max(steps, 1),
        "seconds": statistics.median(seconds) if seconds else 0.0,
    }
    if budget != "eager":
        result["predicted"] = max(find_key(aten_recompute.report(module), "predicted_peak_bytes"))
    return result


def measure_rest(model: str, batch: int, budget: str) -> dict[str, float]:
    _, step = prepare(model, batch, budget, "release")
    for _ in range(4):
        step()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return {"rest": status("VmRSS")}


def in_own_process(arguments: list[str]) -> dict[str, float]:
    output = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return json.loads(output.splitlines()[-1])


def print_first_steps(batch: int, arena: str) -> int:
    """Prints the memory of first steps beside their limit. Returns how many exceed it."""
    exceeded = 0
    print("{:<12} {:>7} {:>9} {:>10} {:>10}".format("model", "budget", "plan MiB", "first MiB", "limit MiB"))
    for model, budget in tqdm(FIRST_STEPS, unit="model", disable=None):
        common = ["--models", model, "--batch", str(batch), "--arena", arena, "--one", budget]
        rest = in_own_process([*common, "rest"])["rest"]
        one = in_own_process([*common, "first"])
        taken, limit = one["first"] - rest, first_step_limit(one["predicted"])
        exceeded += taken > limit
        figures = " ".join(f"{figure / 2**20:>{width}.0f}" for figure, width in ((taken, 10), (limit, 10)))
        tqdm.write(
            f"{model:<12} {budget:>7} {one['predicted'] / 2**20:>9.0f} {figures}"
            + ("  exceeded" if taken > limit else ""),
            file=sys.stdout,
        )
    return exceeded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=choice_list(NAMES), default=list(MODELS), metavar="A,B")
    parser.add_argument("--budgets", type=shares, default=[0.5, 0.25, 0.15], metavar="X,Y")
    parser.add_argument("--arena", choices=("keep", "release", "off"), default="keep")
    parser.add_argument("--batch", type=positive, default=1, help="multiplies the batch size (default 1)")
    parser.add_argument("--steps", type=positive, default=5, help="steps that are measured (default 5)")
    parser.add_argument("--first", action="store_true", help="measure first steps only, those of FIRST_STEPS")
    parser.add_argument("--one", nargs=2, metavar=("BUDGET", "WHAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        budget, what = options.one
        model = options.models[0]
        if what == "rest":
            print(json.dumps(measure_rest(model, options.batch, budget)))
        else:
            steps = 0 if what == "first" else options.steps
            print(json.dumps(measure(model, options.batch, budget, options.arena, steps)))
        return 0
    if options.first:
        return min(print_first_steps(options.batch, options.arena), 1)

    budgets = ["eager", "none", *map(str, options.budgets)]
    head = ("model", "budget", "predicted MiB", "first MiB", "resident MiB", "quotient", "after / rest", "faults", "ms")
    lines = ["{:<12} {:>7} {:>14} {:>9} {:>13} {:>9} {:>13} {:>8} {:>6}".format(*head)]
    with tqdm(total=2 * len(options.models) * len(budgets), unit="process", disable=None) as progress:
        for model in options.models:
            for budget in budgets:
                progress.set_description(f"{model} {budget}")
                common = ["--models", model, "--batch", str(options.batch), "--steps", str(options.steps)]
                common += ["--arena", options.arena]
                rest = in_own_process([*common, "--one", budget, "rest"])["rest"]
                progress.update()
                one = in_own_process([*common, "--one", budget, "peak"])
                progress.update()
                predicted = one.get("predicted")
                resident = one["peak"] - rest
                lines.append(
                    f"{model:<12} {budget:>7} "
                    + (f"{predicted / 2**20:>14.0f} " if predicted else f"{'':>14} ")
                    + f"{(one['first'] - rest) / 2**20:>9.0f} {resident / 2**20:>13.0f} "
                    + (f"{resident / predicted:>9.2f} " if predicted else f"{'':>9} ")
                    + f"{one['after'] / rest:>13.2f} {one['faults']:>8.0f} {1e3 * one['seconds']:>6.0f}"
                )
                progress.write(lines[-1])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
