#!/usr/bin/env python3
"""The resident memory of the process during one training step of a GPT of 12 blocks of width 768.

    python benchmarks/step_memory.py                          # prints a table
    python benchmarks/step_memory.py --svg docs/images/step_memory.svg

Eager PyTorch, ``torch.utils.checkpoint`` around each block, and this library under budgets train the same network on 2
texts of 512 tokens, each in a process of its own. They take turns step by step, and the figures are medians. While one
makes its step, its resident memory is read from ``/proc`` every few milliseconds; the peak is the process's own
(``VmHWM``). All figures are above the rest, which is what the process has resident when everything that is kept for
later steps was given back. The picture shows a further step of each, which begins at the rest. Gradients exist before
the steps and stay, so they are part of the rest; with them, the parameters take 664 MiB. Budgets are shares of the peak
without recomputation.
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
STEP, GIVE_BACK = "step", "give back"  # what a process is told
EAGER, CHECKPOINT = "eager PyTorch", "torch.utils.checkpoint"
PAGE = 4096


def make_step(name: str, context: int, blocks: int) -> Callable[[], None]:
    """Returns a function that makes one step; ``name`` is EAGER, CHECKPOINT or a budget."""
    torch.manual_seed(0)
    text = torch.randint(1000, (2, context + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    model: Any = GPT(blocks=blocks, width=768, heads=12, context=context, vocabulary=1000)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if name == CHECKPOINT:
        model = checkpoint_blocks(model)
    elif name != EAGER:
        model = aten_recompute.lower(torch.jit.script(model), "budget", memory_budget=float(name), accumulate=True)
    return lambda: model(tokens, targets).backward()


def give_back() -> None:
    """Gives back what is kept for later steps."""
    gc.collect()
    aten_recompute.release_memory()
    ctypes.CDLL(None).malloc_trim(0)


def serve(name: str, context: int, blocks: int, warm_up: int) -> None:
    """What the process of one configuration does: makes a step whenever a line arrives."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    step = make_step(name, context, blocks)
    for _ in range(warm_up):
        step()
    give_back()
    print(json.dumps({"rest": status("VmRSS")}), flush=True)
    for line in sys.stdin:
        if line.strip() == GIVE_BACK:
            give_back()
            print(json.dumps({}), flush=True)
            continue
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

    def answer(self) -> dict[str, Any]:
        """Waits for what the process says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, what: str) -> dict[str, Any]:
        """Tells the process to do something, and returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.answer()

    def run(self) -> Step:
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
        try:
            answer = self.ask(STEP)
        finally:
            done.set()
            reader.join()
        return Step(answer["seconds"], answer["peak"] - self.rest, readings)


def start(name: str, options: argparse.Namespace) -> Configuration:
    arguments = ["--serve", name, "--context", str(options.context), "--blocks", str(options.blocks)]
    arguments += ["--warm-up", str(options.warm_up)]
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    configuration = Configuration(name, process)
    configuration.rest = configuration.answer()["rest"]
    configuration.run()  # fills again what was given back
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


def changes(readings: list[tuple[float, int]]) -> tuple[list[float], list[float]]:
    """Returns times and MiB where the memory changes, so that a picture has no point that nobody sees."""
    times: list[float] = []
    taken: list[float] = []
    for i, (seconds, resident) in enumerate(readings):
        if not times or abs(resident / 2**20 - taken[-1]) > 1.0 or i == len(readings) - 1:
            if i > 0:
                times.append(readings[i - 1][0])
                taken.append(taken[-1])
            times.append(seconds)
            taken.append(resident / 2**20)
    return times, taken


def draw(configurations: list[Configuration], path: Path) -> None:
    """Draws a further step of each, before which everything was given back."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "aten_recompute"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8.0, 3.8), layout="constrained")
    colors = ["#555555", "#b5482f", "#1f5fa8", "#12a08c", "#7a4fb0"]
    for i, each in enumerate(configurations):
        color = colors[i % len(colors)]
        each.ask(GIVE_BACK)
        step = each.run()
        times, taken = changes([reading for reading in step.readings if reading[0] <= step.seconds])
        # As long as its steps are otherwise, when no page has to be mapped.
        scale = each.seconds / configurations[0].seconds / max(times)
        times = [scale * seconds for seconds in times]
        axes.plot(times, taken, color=color, linewidth=1.4)
        axes.fill_between(times, taken, color=color, alpha=0.06)
        axes.annotate(
            f"{label(each)}: {each.peak / 2**20:.0f} MiB, {each.seconds / configurations[0].seconds:.2f} of the time",
            (times[-1], max(taken)),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right",
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
    parser.add_argument("--blocks", type=positive, default=12, help="blocks of the network (default 12)")
    parser.add_argument("--rounds", type=positive, default=7, help="steps of each that are measured (default 7)")
    parser.add_argument("--warm-up", type=positive, default=6, help="steps of each before that (default 6)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the memory over the step")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.context, options.blocks, options.warm_up)
        return 0
    names = [EAGER, CHECKPOINT, *map(str, options.budgets)]
    configurations: list[Configuration] = []
    try:
        progress = tqdm(names, desc="warming up", unit="process", disable=None)
        configurations.extend(start(name, options) for name in progress)
        for _ in tqdm(range(options.rounds), unit="round", disable=None):
            for each in configurations:
                each.steps.append(each.run())
        print_table(configurations)
        if options.svg:
            draw(configurations, options.svg)
    finally:
        for each in configurations:
            each.process.kill()
            each.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
