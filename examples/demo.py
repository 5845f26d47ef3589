#!/usr/bin/env python3
"""Trains a character GPT twice, side by side: in eager mode, and lowered by aten_recompute. `make demo` runs it.

    python examples/demo.py --budget 0.5
    python examples/demo.py --steps 20 --strategy segments

The text is the source of Python's standard library, which every machine with Python has. Both models start from the
same weights, see the same batches and draw the same dropout masks, so their losses have to agree, and the peak memory
of the lowered model has to stay within its budget. The demo checks both and exits with 1 if a check fails. It prints
the loss, the predicted and the measured peak, and the step time, and writes to ``demo_out``:

    memory.png   the memory in use over one training step, of both models
    gpt.pt       the trained lowered model, which examples/cpp_train then trains further in C++, if it is built
    tokens.pt    the text as a uint8 tensor of character codes, for C++
"""

import argparse
import copy
import importlib.util
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
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
from benchmarks.networks.gpt import GPT
from benchmarks.timing import disturbed

# PyTorch warns at every call that torch.jit is deprecated, with a DeprecationWarning or, from 2.14 on, a FutureWarning.
warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")

# Small enough to train in a minute or two on two cores, and deep enough for a budget to matter.
BLOCKS, WIDTH, HEADS, CONTEXT, BATCH = 4, 128, 4, 128, 16
VOCABULARY = 128  # ASCII
TEXT_BYTES = 1_000_000
LEARNING_RATE = 1e-3

LOSS_TOLERANCE = 1e-4  # relative
BUDGET_TOLERANCE = 0.01  # relative; a plan is made again if a step needs more than this above its prediction
WARM_UP_STEPS = 3  # the first calls compile, so they do not count for the step time
REPORT_EVERY = 10
RECORDED_STEPS = 3  # for the plot, which shows the fastest of them
DEFAULT_BUDGET = 0.5

CPP_TRAIN = REPOSITORY / "build" / "examples" / "cpp_train" / "cpp_train"

# With "profile", the peak is predicted for strategies that do without a prediction, too.
STRATEGIES: dict[str, dict[str, Any]] = {
    "budget": {"strategy": "budget"},
    "none": {"strategy": "none", "profile": True},
    "all": {"strategy": "all", "profile": True},
    "layers": {"strategy": "layers", "start": 0, "stride": 2, "profile": True},
    "segments": {"strategy": "segments"},
    "min_cut": {"strategy": "min_cut", "aggressive_recomputation": True},
}


class DemoError(RuntimeError):
    """The demo cannot continue, or a check failed; the message is one line for the user."""


def load_text() -> Tensor:
    """Returns modules of the standard library, in alphabetical order: uint8 (at most TEXT_BYTES,), all below 128."""
    folder = Path(os.__file__).parent
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        # In UTF-8 every byte of a character outside of ASCII is at least 128, so such characters are left out entirely.
        text += bytes(byte for byte in path.read_bytes() if byte < VOCABULARY)
        if len(text) >= TEXT_BYTES:
            break
    if len(text) < 100 * CONTEXT:
        raise DemoError(f"{folder} holds too little Python source to train on ({len(text)} characters)")
    return torch.frombuffer(text[:TEXT_BYTES], dtype=torch.uint8).clone()


def random_batch(text: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Returns [tokens, targets], each int64 (BATCH, CONTEXT); the targets are the tokens shifted by one."""
    starts = torch.randint(text.numel() - CONTEXT - 1, (BATCH, 1), generator=generator)
    crops = text[starts + torch.arange(CONTEXT + 1)].long()
    return [crops[:, :-1].contiguous(), crops[:, 1:].contiguous()]


class Trainer:
    """One of the two models with its optimizer and its measurements."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self.module = module
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE)
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.peaks: list[int] = []
        self.timeline = Timeline()

    def forward_backward(self, batch: list[Tensor], seed: int) -> float:
        torch.manual_seed(seed)  # so that both models draw the same dropout masks
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
        """Records the memory of a step, and keeps the timeline of the fastest step recorded so far."""
        self.optimizer.zero_grad(set_to_none=True)
        with tracker.record_timeline() as timeline:
            self.forward_backward(batch, seed)
        if not self.timeline.seconds or timeline.seconds[-1] < self.timeline.seconds[-1]:
            self.timeline = timeline
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def step_ms(self) -> float:
        return statistics.median(self.seconds) * 1e3

    @property
    def peak_mib(self) -> float:
        return statistics.median(self.peaks) / 2**20


def relative_difference(a: float, b: float) -> float:
    # A NaN in either loss becomes infinity, which no tolerance accepts.
    difference = abs(a - b) / max(abs(b), 1e-12)
    return float("inf") if math.isnan(difference) else difference


@dataclass
class Prediction:
    """What the library predicts for one step of the lowered model. All sizes are in bytes."""

    peak: int
    unplanned_peak: int  # without recomputation
    budget: int | None  # what the peak may be, under a budget


def read_prediction(lowered: torch.jit.ScriptModule) -> Prediction:
    """Reads the prediction from the report of a lowered model that has been trained for a step."""
    import aten_recompute

    method = aten_recompute.report(lowered)["methods"][0]
    specialization = method["specialisations"][0]
    variants = [variant for region in specialization["regions"] for variant in region["variants"]]
    # The last plan is the one in use; a method with several regions has a plan for all of them.
    metrics = (specialization["plans"] or variants)[-1]
    unplanned_peak = metrics["unplanned_peak_bytes"]
    budget = method["options"].get("memory_budget")
    if budget is not None:
        budget = int(budget * unplanned_peak) if budget <= 1 else int(budget)
    return Prediction(metrics["predicted_peak_bytes"], unplanned_peak, budget)


def train_side_by_side(eager: Trainer, ours: Trainer, text: Tensor, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    with tqdm(total=WARM_UP_STEPS + steps, unit="step", dynamic_ncols=True, desc="training") as progress:
        progress.write(f"{'step':>6} {'eager loss':>12} {'lowered loss':>13} {'difference':>11}")
        for step in range(WARM_UP_STEPS + steps):
            batch = random_batch(text, generator)
            number = step - WARM_UP_STEPS + 1
            # Memory and time are measured in different steps, because measuring a peak begins with collecting garbage.
            # The first steps, which compile, count for neither.
            measure_peak = number == 1 or (number > 0 and number % REPORT_EVERY == 0)
            # The models take turns in going first, so that both profit from a warm cache equally often.
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
    for _ in range(RECORDED_STEPS):
        for trainer in (eager, ours):
            trainer.record(batch, seed=0)


def print_table(eager: Trainer, ours: Trainer, prediction: Prediction) -> None:
    def print_row(title: str, form: str, a: float | None, b: float) -> None:
        known = "" if a is None else f"{a:{form}}"
        ratio = "" if a is None else f"{b / a:.3f}"
        print(f"{title:<26} {known:>10} {b:>18{form}} {ratio:>7}")

    print(f"\n{'':<26} {eager.name:>10} {ours.name:>18} {'ratio':>7}")
    print_row("last loss", ".5f", eager.losses[-1], ours.losses[-1])
    print_row("predicted peak, MiB", ".1f", None, prediction.peak / 2**20)
    print_row("measured peak, MiB", ".1f", eager.peak_mib, ours.peak_mib)
    print_row("step time, ms", ".1f", eager.step_ms, ours.step_ms)
    print("Peaks are above the memory in use before the step: parameters, optimizer state and batch are not counted.")
    print(f"Without recomputation the lowered model would take {prediction.unplanned_peak / 2**20:.1f} MiB.")
    if disturbed(eager.seconds) or disturbed(ours.seconds):
        print("Other work on the machine disturbed the step times, so that their ratio is meaningless.")
    print()


def check_losses(eager: Trainer, ours: Trainer) -> None:
    worst = max(relative_difference(b, a) for a, b in zip(eager.losses, ours.losses, strict=True))
    if worst > LOSS_TOLERANCE:
        raise DemoError(f"the losses do not agree: they differ by up to {worst:.1e}, more than {LOSS_TOLERANCE:.0e}")
    print(f"The losses agree: over all steps they differ by at most {worst:.1e} (relative).")


def check_budget(ours: Trainer, prediction: Prediction) -> None:
    """Checks that no measured step exceeded the budget, if there is one."""
    if prediction.budget is None:
        return
    measured, unplanned = max(ours.peaks) / 2**20, prediction.unplanned_peak / 2**20
    budget = (
        f"{prediction.budget / 2**20:.1f} MiB ({prediction.budget / prediction.unplanned_peak:.0%} of {unplanned:.1f})"
    )
    if max(ours.peaks) > (1.0 + BUDGET_TOLERANCE) * prediction.budget:
        raise DemoError(f"the budget of {budget} is exceeded: the measured peak is {measured:.1f} MiB")
    print(f"The budget of {budget} is kept: the largest measured peak is {measured:.1f} MiB.")


def plot_memory(eager: Trainer, ours: Trainer, prediction: Prediction, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for trainer, color in ((eager, "tab:gray"), (ours, "tab:blue")):
        milliseconds = [seconds * 1e3 for seconds in trainer.timeline.seconds]
        mib = [value / 2**20 for value in trainer.timeline.bytes]
        axes.step(milliseconds, mib, where="post", color=color, linewidth=1.2, label=trainer.name)
        axes.fill_between(milliseconds, mib, step="post", color=color, alpha=0.2)
        peak = max(range(len(mib)), key=mib.__getitem__)
        axes.plot(milliseconds[peak], mib[peak], "o", color=color)
        axes.annotate(
            f"{mib[peak]:.1f} MiB",
            (milliseconds[peak], mib[peak]),
            xytext=(6, 6),
            textcoords="offset points",
            color=color,
        )
    if prediction.budget is not None:
        budget = prediction.budget / 2**20
        axes.axhline(budget, color="tab:red", linestyle="--", linewidth=1.0, label=f"budget, {budget:.1f} MiB")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.08)
    axes.set_xlabel("time in one step (forward and backward), ms")
    axes.set_ylabel("memory in use above the level before the step, MiB")
    axes.set_title(f"A GPT of {BLOCKS} blocks, width {WIDTH}, {CONTEXT} tokens, batch {BATCH}")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def continue_in_cpp(model: Path, tokens: Path) -> None:
    if not CPP_TRAIN.exists():
        print(f"{CPP_TRAIN.relative_to(REPOSITORY)} is not built, so {model.name} is not trained further in C++.")
        return
    print(f"\nC++, with no Python in the process, trains {model.name} further:", flush=True)
    command = [str(CPP_TRAIN), str(model), str(tokens), "--length", str(CONTEXT), "--batch", str(BATCH)]
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise DemoError(f"cpp_train failed with exit code {code}")


def memory_budget(text: str) -> float | str:
    """The type of --budget: a fraction, or a size such as "40MiB", which `lower` reads itself."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a character GPT in eager mode and lowered, side by side.")
    parser.add_argument(
        "--budget",
        type=memory_budget,
        help="what the peak of a step may be: a fraction of the peak without recomputation, or a size such as 20MiB "
        f"(default: {DEFAULT_BUDGET})",
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="budget", help="how to choose what is recomputed (default: budget)"
    )
    parser.add_argument(
        "--steps", type=int, default=60, help=f"training steps after {WARM_UP_STEPS} to warm up (default: 60)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=REPOSITORY / "demo_out",
        help="folder for the files that the demo writes (default: demo_out in the repository)",
    )
    options = parser.parse_args(arguments)
    if options.steps < 2:
        parser.error("--steps must be at least 2: one step measures the peak, the other one the time")
    if options.strategy != "budget" and options.budget is not None:
        parser.error(f"--budget belongs to --strategy budget, not to --strategy {options.strategy}")
    return options


def lower_copy(model: torch.nn.Module, spec: dict[str, Any]) -> torch.jit.ScriptModule:
    import aten_recompute

    try:
        return aten_recompute.lower(torch.jit.script(copy.deepcopy(model)), spec)
    except ValueError as error:  # a budget that cannot be read, for example
        raise DemoError(str(error)) from error


def run(options: argparse.Namespace) -> None:
    tracker.install()
    try:
        import aten_recompute  # noqa: F401  (here, so that those who have not built it get the message below)
    except (ImportError, FileNotFoundError) as error:
        raise DemoError(f"aten_recompute cannot be imported ({error}): run `make build` first") from error

    text = load_text()
    torch.manual_seed(0)
    model = GPT(BLOCKS, WIDTH, HEADS, CONTEXT, VOCABULARY)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"A GPT with {parameters:,} parameters learns {text.numel():,} characters of the Python standard library "
        f"on {torch.get_num_threads()} threads."
    )
    spec, name = dict(STRATEGIES[options.strategy]), options.strategy
    if options.strategy == "budget":
        spec["memory_budget"] = DEFAULT_BUDGET if options.budget is None else options.budget
        name = f"budget {spec['memory_budget']}"
    lowered = lower_copy(model, spec)
    eager, ours = Trainer("eager", model), Trainer(f"lowered ({name})", lowered)

    try:
        train_side_by_side(eager, ours, text, options.steps)
    except RuntimeError as error:
        if "memory_budget" not in str(error):
            raise
        raise DemoError(str(error)) from error  # no plan keeps the budget
    prediction = read_prediction(lowered)
    print_table(eager, ours, prediction)

    options.out.mkdir(parents=True, exist_ok=True)
    plot_memory(eager, ours, prediction, options.out / "memory.png")
    lowered.save(str(options.out / "gpt.pt"))
    torch.save(text, options.out / "tokens.pt")
    print(f"The demo wrote memory.png, gpt.pt and tokens.pt to {options.out}.")

    check_losses(eager, ours)
    check_budget(ours, prediction)
    continue_in_cpp(options.out / "gpt.pt", options.out / "tokens.pt")


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
