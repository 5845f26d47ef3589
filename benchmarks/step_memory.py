#!/usr/bin/env python3
"""The resident memory of the process during one training step of a GPT of 12 blocks of width 768.

    python benchmarks/step_memory.py                          # prints a table
    python benchmarks/step_memory.py --svg docs/images/step_memory.svg

Eager PyTorch, ``torch.utils.checkpoint`` around each block, and this library under budgets train the same network on 2
texts of 512 tokens, each in a process of its own. They take turns step by step, and the times are medians. While one
makes its step, its resident memory is read from ``/proc`` every few milliseconds; the peak is the process's own
(``VmHWM``). All figures are above the rest, which is what the process has resident when everything that is kept for
later steps was given back. Gradients exist before the steps and stay, so they are part of the rest; with them the
parameters take 650 MiB. Budgets are shares of the peak without recomputation.
"""

import argparse
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from tqdm import tqdm

import aten_recompute
from benchmarks.arguments import positive, shares
from benchmarks.networks.gpt import GPT
from benchmarks.peers import checkpoint_blocks
from benchmarks.resident import reset_peak, status

INTERVAL = 0.004  # seconds between two readings
EAGER, CHECKPOINT = "eager PyTorch", "torch.utils.checkpoint"
PAGE = 4096


def make_step(name: str, context: int) -> Callable[[], None]:
    """Returns a function that makes one step; ``name`` is EAGER, CHECKPOINT or a budget."""
    torch.manual_seed(0)
    text = torch.randint(1000, (2, context + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    model: Any = GPT(blocks=12, width=768, heads=12, context=context, vocabulary=1000)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if name == CHECKPOINT:
        model = checkpoint_blocks(model)
    elif name != EAGER:
        model = aten_recompute.lower(torch.jit.script(model), "budget", memory_budget=float(name), accumulate=True)
    return lambda: model(tokens, targets).backward()


def serve(name: str, context: int, warm_up: int) -> None:
    """What the process of one configuration does: makes a step whenever a line arrives."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    step = make_step(name, context)
    for _ in range(warm_up):
        step()
    gc.collect()
    aten_recompute.release_memory()
    ctypes.CDLL(None).malloc_trim(0)
    print(json.dumps({"rest": status("VmRSS")}), flush=True)
    for _ in sys.stdin:
        reset_peak()
        begin = time.perf_counter()
        step()
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds, "peak": status("VmHWM")}), flush=True)


@dataclass
class Step:
    """One step that was watched."""

    seconds: float
    peak: int  #: bytes above the rest
    readings: list[tuple[float, int]]  #: seconds since the step began, and bytes above the rest


@dataclass
class Configuration:
    """One configuration, with the process that runs it."""

    name: str
    process: "subprocess.Popen[str]"
    rest: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(step.seconds for step in self.steps)

    @property
    def peak(self) -> float:
        return statistics.median(step.peak for step in self.steps)

    @property
    def typical(self) -> Step:
        """The step whose time is the median."""
        return sorted(self.steps, key=lambda step: step.seconds)[len(self.steps) // 2]

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self) -> None:
        """Lets the process make a step and reads its resident memory meanwhile."""
        readings: list[tuple[float, int]] = []
        done = threading.Event()
        statm = Path(f"/proc/{self.process.pid}/statm")
        begin = time.perf_counter()

        def read() -> None:
            while not done.wait(INTERVAL):
                resident = int(statm.read_text().split()[1]) * PAGE
                readings.append((time.perf_counter() - begin, resident - self.rest))

        reader = threading.Thread(target=read)
        reader.start()
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        try:
            answer = self.answer()
        finally:
            done.set()
            reader.join()
        self.steps.append(Step(answer["seconds"], answer["peak"] - self.rest, readings))


def start(name: str, options: argparse.Namespace) -> Configuration:
    arguments = ["--serve", name, "--context", str(options.context), "--warm-up", str(options.warm_up)]
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    configuration = Configuration(name, process)
    configuration.rest = configuration.answer()["rest"]
    configuration.run()  # fills again what was given back
    configuration.steps.clear()
    return configuration


def label(configuration: Configuration) -> str:
    name = configuration.name
    return name if name in (EAGER, CHECKPOINT) else f"aten_recompute, budget {name}"


def print_table(configurations: list[Configuration]) -> None:
    eager = configurations[0]
    print(f"{'':<28} {'peak MiB':>9} {'of eager':>9} {'seconds':>8} {'of eager':>9}")
    for each in configurations:
        print(
            f"{label(each):<28} {each.peak / 2**20:>9.0f} {each.peak / eager.peak:>9.2f} "
            f"{each.seconds:>8.2f} {each.seconds / eager.seconds:>9.2f}"
        )


def draw(configurations: list[Configuration], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "aten_recompute"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.0, 3.8), layout="constrained")
    colors = ["#555555", "#b5482f", "#1f5fa8", "#12a08c", "#7a4fb0"]
    unit = configurations[0].seconds
    for i, each in enumerate(configurations):
        color = colors[i % len(colors)]
        step = each.typical
        times = [seconds / unit for seconds, _ in step.readings]
        resident = [taken / 2**20 for _, taken in step.readings]
        axes.plot(times, resident, color=color, linewidth=1.4)
        axes.fill_between(times, resident, color=color, alpha=0.06)
        highest = max(range(len(resident)), key=resident.__getitem__)
        axes.annotate(
            f"{label(each)}: {each.peak / 2**20:.0f} MiB",
            (times[highest], resident[highest]),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=color,
        )
    axes.set_xlabel("time in the step, in steps of eager PyTorch")
    axes.set_ylabel("resident memory above the rest, MiB")
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0, top=1.1 * max(each.peak for each in configurations) / 2**20)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=shares, default=[0.3, 0.1], metavar="X,Y")
    parser.add_argument("--context", type=positive, default=512, help="tokens of a text (default 512)")
    parser.add_argument("--rounds", type=positive, default=7, help="steps of each that are measured (default 7)")
    parser.add_argument("--warm-up", type=positive, default=6, help="steps of each before that (default 6)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the memory over the step")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.context, options.warm_up)
        return 0
    names = [EAGER, CHECKPOINT, *map(str, options.budgets)]
    configurations: list[Configuration] = []
    try:
        progress = tqdm(names, desc="warming up", unit="process", disable=None)
        configurations.extend(start(name, options) for name in progress)
        for _ in tqdm(range(options.rounds), unit="round", disable=None):
            for each in configurations:
                each.run()
    finally:
        for each in configurations:
            each.process.kill()
            each.process.wait()
    print_table(configurations)
    if options.svg:
        draw(configurations, options.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
