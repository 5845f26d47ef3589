"""Loops over time that read x[:, t] or write out[:, t]: peak and time of a step, beside eager PyTorch and TorchScript.

    python benchmarks/sequence.py                    # 64, 256 and 512 steps, budgets of 0.5 and 0.4
    python benchmarks/sequence.py writes --lengths 1000 --compile

The gradient of a sequence that is read comes in parts, one for each step. Eager PyTorch writes each into a tensor as
large as the sequence, and adds these up. Of a sequence that is written to, it copies the gradient at each step. Peaks
are bytes that are alive at once, and times are medians of the CPU time of seven steps on one thread, in turn with the
other methods; both are relative to eager PyTorch's. Budgets are in bytes, as fractions of eager PyTorch's peak.
Gradients are compared with eager PyTorch's, bit by bit. "compile", which --compile adds, is eager PyTorch with
torch.compile, which compiles for minutes.
"""

import argparse
import copy
import functools
import itertools
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import aten_recompute  # noqa: E402
from benchmarks.arguments import positive  # noqa: E402
from benchmarks.memory import tracker  # noqa: E402
from benchmarks.timing import processor_time  # noqa: E402

STEPS_BEFORE = 8


class Reads(nn.Module):
    """A gated cell that reads embedded inputs one by one: (batch, length, features) to a number."""

    def __init__(self, features: int = 128, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(features, features)
        self.cell = nn.GRUCell(features, width)
        self.last = nn.Linear(width, 1)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.embed(x))
        state = torch.zeros(x.size(0), self.width, dtype=x.dtype, device=x.device)
        for t in range(x.size(1)):
            state = self.cell(y[:, t], state)
        return self.last(state).mean()


class Writes(nn.Module):
    """A gated cell that writes its states into one tensor: (batch, length, features) to a number."""

    def __init__(self, features: int = 128, width: int = 64) -> None:
        super().__init__()
        self.cell = nn.GRUCell(features, width)
        self.last = nn.Linear(width, 8)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.size(0), self.width, dtype=x.dtype, device=x.device)
        states = torch.zeros(x.size(0), x.size(1), self.width, dtype=x.dtype, device=x.device)
        for t in range(x.size(1)):
            state = self.cell(x[:, t], state)
            states[:, t] = state
        return self.last(states).square().mean()


LOOPS: dict[str, Callable[[], nn.Module]] = {"reads": Reads, "writes": Writes}


def step(module: Any, x: Tensor) -> tuple[int, float]:
    """Returns peak in bytes and CPU time in seconds."""
    module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak, processor_time() as elapsed:
        module(x).backward()
    return peak.bytes, elapsed.seconds


def gradients(module: Any) -> list[Tensor]:
    return [parameter.grad for _, parameter in sorted(module.named_parameters())]


def prepared(make: Callable[[], Any], row: str, x: Tensor) -> Any:
    """Returns a module that has run some steps, or None, with a row, where a step raises an error."""
    try:
        module = make()
        for _ in range(STEPS_BEFORE):
            step(module, x)
    except Exception as error:  # a budget that cannot be reached, or what torch.compile cannot do
        print(f"{row} {str(error).strip().splitlines()[-1][:80]} | | |", flush=True)
        return None
    return module


def compare(loop: str, length: int, batch: int, budgets: list[float], with_compile: bool) -> None:
    torch.manual_seed(0)
    eager, x = LOOPS[loop](), torch.randn(batch, length, 128)

    most = max(step(eager, x)[0] for _ in range(2))

    def lowered(strategy: str, **options: Any) -> Any:
        return aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), strategy, **options)

    methods: dict[str, Callable[[], Any]] = {
        "eager": lambda: eager,
        "stock": lambda: torch.jit.script(copy.deepcopy(eager)),
        "none": lambda: lowered("none"),
    }
    for share in budgets:
        methods[f"budget {share}"] = functools.partial(lowered, "budget", memory_budget=f"{int(share * most)}B")
    if with_compile:
        methods["compile"] = lambda: torch.compile(copy.deepcopy(eager), dynamic=False)
    rows = {name: f"| {loop} | {length} | {name} |" for name in methods}
    modules = {name: module for name, make in methods.items() if (module := prepared(make, rows[name], x))}
    measured: dict[str, list[tuple[int, float]]] = {name: [] for name in modules}
    for _ in range(7):
        for name, module in modules.items():
            measured[name].append(step(module, x))
    usual = statistics.median(seconds for _, seconds in measured["eager"])
    for name, values in measured.items():
        same = all(map(torch.equal, gradients(modules[name]), gradients(eager)))
        peak = max(each for each, _ in values) / most
        seconds = statistics.median(each for _, each in values) / usual
        print(f"{rows[name]} {peak:.2f} | {seconds:.2f} | {'yes' if same else 'no'} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", nargs="*", choices=[*LOOPS, []], help="which loops (default: both)")
    parser.add_argument("--lengths", type=positive, nargs="+", default=[64, 256, 512], help="steps of the sequences")
    parser.add_argument("--batch", type=positive, default=32, help="number of sequences (default: %(default)s)")
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.5, 0.4], help="fractions of the peak")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tracker.install()
    print("| loop | length | method | peak, of eager's | time, of eager's | same gradients |")
    print("|---|---|---|---|---|---|")
    for loop, length in itertools.product(arguments.loops or LOOPS, arguments.lengths):
        compare(loop, length, arguments.batch, arguments.budgets, arguments.compile)


if __name__ == "__main__":
    main()
