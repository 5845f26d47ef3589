#!/usr/bin/env python3
"""Trains a character GPT twice, side by side: in eager mode and lowered by aten_recompute. What `make demo` runs.

    python examples/demo.py --steps 60 --strategy segments

The text is the Python standard library's own source, which every machine with Python has. Both models start from the
same weights, see the same batches and draw the same dropout masks, so their losses must agree; the demo checks that
they do and exits with 1 if not. It prints loss, peak memory and step time of both, and leaves in ``demo_out``:

    memory.png   live memory over one training step, both models
    gpt.pt       the trained lowered model, which C++ can go on training (examples/cpp_train does, if it is built)
    tokens.pt    the text as a uint8 tensor of character codes, for C++
"""

import argparse
import copy
import importlib.util
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.memory import Timeline, TrackerError, tracker
from benchmarks.models import GPT
from benchmarks.timing import disturbed

# PyTorch 2.13 says at every call that torch.jit is deprecated.
warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)

# The size: small enough for a minute or two on two cores, deep enough for segments to matter.
BLOCKS, WIDTH, HEADS, CONTEXT, BATCH = 4, 128, 4, 128, 16
VOCABULARY = 128  # ASCII
TEXT_BYTES = 1_000_000
LEARNING_RATE = 1e-3

TOLERANCE = 1e-4
WARM_UP_STEPS = 3  # the first calls compile; they are left out of the step time
REPORT_EVERY = 10

CPP_TRAIN = REPOSITORY / "build" / "examples" / "cpp_train" / "cpp_train"

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "layers": {"strategy": "layers", "start": 0, "stride": 2},
    "segments": {"strategy": "segments"},
}


class DemoError(RuntimeError):
    """The demo cannot go on; the message is one line for the user."""


def load_text() -> Tensor:
    """The standard library's modules in alphabetical order, up to `TEXT_BYTES`: uint8 (characters,), all below 128."""
    folder = Path(os.__file__).parent
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        # Every byte of a character outside ASCII is 128 or more in UTF-8: this drops such characters whole.
        text += bytes(byte for byte in path.read_bytes() if byte < VOCABULARY)
        if len(text) >= TEXT_BYTES:
            break
    if len(text) < 100 * CONTEXT:
        raise DemoError(f"{folder} holds too little Python source to train on ({len(text)} characters)")
    return torch.frombuffer(text[:TEXT_BYTES], dtype=torch.uint8).clone()


def random_batch(text: Tensor, generator: torch.Generator) -> list[Tensor]:
    """[tokens, targets], int64 (BATCH, CONTEXT) each; the targets are the tokens moved by one."""
    starts = torch.randint(text.numel() - CONTEXT - 1, (BATCH, 1), generator=generator)
    crops = text[starts + torch.arange(CONTEXT + 1)].long()
    return [crops[:, :-1].contiguous(), crops[:, 1:].contiguous()]


class Trainer:
    """One of the two models with its optimizer, and what was measured of it."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self.module = module
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE)
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.peaks: list[int] = []
        self.timeline = Timeline()

    def forward_backward(self, batch: list[Tensor], seed: int) -> float:
        torch.manual_seed(seed)  # both models draw the same dropout masks
        loss = self.module(*batch)
        loss.backward()
        return loss.item()

    def train(self, batch: list[Tensor], seed: int, measure_peak: bool) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        if measure_peak:
            with tracker.measure_peak() as peak:
                loss = self.forward_backward(batch, seed)
            self.peaks.append(peak.bytes)
        else:
            begin = time.perf_counter()
            loss = self.forward_backward(batch, seed)
            self.seconds.append(time.perf_counter() - begin)
        self.losses.append(loss)
        self.optimizer.step()

    def record(self, batch: list[Tensor], seed: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with tracker.record_timeline() as self.timeline:
            self.forward_backward(batch, seed)
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def step_ms(self) -> float:
        return statistics.median(self.seconds) * 1e3

    @property
    def peak_mib(self) -> float:
        return statistics.median(self.peaks) / 2**20


def relative_difference(a: float, b: float) -> float:
    # Written so that a NaN in either loss gives infinity, which no tolerance accepts.
    difference = abs(a - b) / max(abs(b), 1e-12)
    return difference if difference == difference else float("inf")


def train_side_by_side(eager: Trainer, ours: Trainer, text: Tensor, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    with tqdm(total=WARM_UP_STEPS + steps, unit="step", dynamic_ncols=True, desc="training") as progress:
        progress.write(f"{'step':>6} {'eager loss':>12} {'lowered loss':>13} {'difference':>11}")
        for step in range(WARM_UP_STEPS + steps):
            batch = random_batch(text, generator)
            number = step - WARM_UP_STEPS + 1
            # Memory and time are read in different steps: collecting garbage, which a clean peak needs, takes time.
            # Never in the first steps, which compile.
            measure_peak = number == 1 or number > 0 and number % REPORT_EVERY == 0
            # They take turns in going first, so that a warm cache helps both alike.
            for trainer in (eager, ours) if step % 2 == 0 else (ours, eager):
                trainer.train(batch, seed=step, measure_peak=measure_peak)
            if step < WARM_UP_STEPS:
                eager.seconds.clear()
                ours.seconds.clear()
            if step == 0 or measure_peak:
                a, b = eager.losses[-1], ours.losses[-1]
                progress.write(f"{step + 1:>6} {a:>12.6f} {b:>13.6f} {relative_difference(b, a):>11.1e}")
            progress.set_postfix(eager=f"{eager.losses[-1]:.3f}", lowered=f"{ours.losses[-1]:.3f}")
            progress.update()
    batch = random_batch(text, generator)
    for trainer in (eager, ours):
        trainer.record(batch, seed=0)


def print_table(eager: Trainer, ours: Trainer) -> None:
    rows = [
        ("last loss", eager.losses[-1], ours.losses[-1], ".5f"),
        ("peak above rest, MiB", eager.peak_mib, ours.peak_mib, ".1f"),
        ("step time, ms", eager.step_ms, ours.step_ms, ".1f"),
    ]
    print(f"\n{'':<22} {eager.name:>10} {ours.name:>18} {'ratio':>7}")
    for title, a, b, form in rows:
        print(f"{title:<22} {a:>10{form}} {b:>18{form}} {b / a:>7.3f}")
    if disturbed(eager.seconds) or disturbed(ours.seconds):
        print("Other work on the machine disturbed the step times: their ratio says nothing.")
    print()


def plot_memory(eager: Trainer, ours: Trainer, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for trainer, colour in ((eager, "tab:gray"), (ours, "tab:blue")):
        milliseconds = [seconds * 1e3 for seconds in trainer.timeline.seconds]
        mib = [value / 2**20 for value in trainer.timeline.bytes]
        axes.step(milliseconds, mib, where="post", color=colour, linewidth=1.2, label=trainer.name)
        axes.fill_between(milliseconds, mib, step="post", color=colour, alpha=0.2)
        peak = max(range(len(mib)), key=mib.__getitem__)
        axes.plot(milliseconds[peak], mib[peak], "o", color=colour)
        axes.annotate(
            f"{mib[peak]:.0f} MiB",
            (milliseconds[peak], mib[peak]),
            xytext=(6, 6),
            textcoords="offset points",
            color=colour,
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.08)
    axes.set_xlabel("time in one step (forward and backward), ms")
    axes.set_ylabel("live memory above rest, MiB")
    axes.set_title(f"A GPT of {BLOCKS} blocks, width {WIDTH}, {CONTEXT} tokens, batch {BATCH}")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def go_on_in_cpp(model: Path, tokens: Path) -> None:
    if not CPP_TRAIN.exists():
        print(f"{CPP_TRAIN.relative_to(REPOSITORY)} is not built, so C++ does not go on from {model.name}")
        return
    print(f"C++, with no Python in the process, goes on from {model.name}:", flush=True)
    command = [str(CPP_TRAIN), str(model), str(tokens), "--length", str(CONTEXT), "--batch", str(BATCH)]
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise DemoError(f"cpp_train failed with exit code {code}")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a character GPT in eager mode and lowered, side by side.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=60, help=f"training steps after {WARM_UP_STEPS} to warm up")
    parser.add_argument("--strategy", choices=STRATEGIES, default="segments", help="what to recompute")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "demo_out", help="folder for what the demo writes")
    options = parser.parse_args(arguments)
    if options.steps < 2:
        parser.error("--steps must be at least 2: one to read the peak, one to read the time")
    return options


def run(options: argparse.Namespace) -> None:
    tracker.install()
    try:
        import aten_recompute
    except ImportError as error:
        raise DemoError(f"aten_recompute cannot be imported ({error}): run `make build` first") from error

    text = load_text()
    torch.manual_seed(0)
    model = GPT(BLOCKS, WIDTH, HEADS, CONTEXT, VOCABULARY)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"A GPT with {parameters:,} parameters learns {text.numel():,} characters of the Python standard library "
        f"on {torch.get_num_threads()} threads."
    )
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(model)), **STRATEGIES[options.strategy])
    eager, ours = Trainer("eager", model), Trainer(f"lowered ({options.strategy})", lowered)

    train_side_by_side(eager, ours, text, options.steps)
    print_table(eager, ours)

    options.out.mkdir(parents=True, exist_ok=True)
    plot_memory(eager, ours, options.out / "memory.png")
    lowered.save(str(options.out / "gpt.pt"))
    torch.save(text, options.out / "tokens.pt")
    print(f"written to {options.out}: memory.png, gpt.pt, tokens.pt\n")

    worst = max(relative_difference(b, a) for a, b in zip(eager.losses, ours.losses))
    if worst > TOLERANCE:
        raise DemoError(f"the losses do not agree: they differ by up to {worst:.1e}, more than {TOLERANCE:.0e}")
    print(f"the losses agree: over all steps they differ by at most {worst:.1e} (relative)\n")

    go_on_in_cpp(options.out / "gpt.pt", options.out / "tokens.pt")


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        run(options)
    except (DemoError, TrackerError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
