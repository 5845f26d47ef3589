#!/usr/bin/env python3
"""Peak memory and step time of every benchmark model: eager, stock TorchScript, and lowered with several strategies.

    python benchmarks/run.py                               # what `make bench` runs
    python benchmarks/run.py --models gpt --only eager,segments --repeats 3 --size small

All configurations of a model live in one process, each with its own copy of the same weights, and take turns: one
step each per repetition, in an order that rotates, so that a busy moment of the machine falls on all of them. Reported
are medians over the repetitions, and ratios of medians to eager's. A step frees the gradients, runs forward and
backward and reads the loss; its peak is counted above what rests before it, parameters and batch included in the rest.

Writes ``results.json`` and one picture per model to ``benchmarks/out``. Exits with 1 if a configuration failed.
"""

import argparse
import copy
import gc
import importlib.util
import json
import os
import platform
import statistics
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from torch import nn
from tqdm import tqdm

from benchmarks import models
from benchmarks.memory import TrackerError, tracker
from benchmarks.timing import disturbed

# PyTorch 2.13 says at every call that torch.jit is deprecated.
warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)

Compile = Callable[[nn.Module], nn.Module]


def lowered(**options: Any) -> Compile:
    def compile_module(module: nn.Module) -> nn.Module:
        import aten_recompute

        return aten_recompute.lower(torch.jit.script(module), **options)

    return compile_module


# What is compared. A new configuration is one line here.
CONFIGURATIONS: Dict[str, Compile] = {
    "eager": lambda module: module,
    "torchscript": torch.jit.script,
    "none": lowered(strategy="none"),
    "all": lowered(strategy="all"),
    "layers": lowered(strategy="layers", start=0, stride=2),
    "segments": lowered(strategy="segments"),
}

WARM_UP_STEPS = 2


@dataclass
class Result:
    """One configuration of one model. Medians over the repetitions; ratios are to eager, None where eager was left out.

    `loss` is the loss of the first measured step. All configurations seed that step alike, so without `--optimizer` it
    differs from eager's only by rounding, or where a compiler draws the dropout masks in another order.

    `disturbed` says that other work on the machine has spoilt `step_seconds` or the step time of eager, with which it
    is compared: `time_ratio` is then worth nothing (see timing.py).
    """

    model: str
    configuration: str
    peak_bytes: float = 0.0
    step_seconds: float = 0.0
    peak_ratio: Optional[float] = None
    time_ratio: Optional[float] = None
    loss: float = float("nan")
    peaks_bytes: List[int] = field(default_factory=list)
    steps_seconds: List[float] = field(default_factory=list)
    disturbed: bool = False
    error: Optional[str] = None


class Contender:
    """One configuration with its own copy of the model."""

    def __init__(self, workload: models.Workload, configuration: str, device: str, optimizer: bool) -> None:
        self.workload = workload
        self.device = device
        self.result = Result(workload.name, configuration)
        self.module = CONFIGURATIONS[configuration](copy.deepcopy(workload.module))
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3) if optimizer else None

    def step(self) -> float:
        """One training step; returns the loss, which also waits for the device."""
        loss = self.workload.step(self.module)
        if self.optimizer is not None:
            self.optimizer.step()
        return loss.item()

    def warm_up(self) -> None:
        torch.manual_seed(0)
        self.step()

    def measure(self, repetition: int) -> None:
        torch.manual_seed(repetition)
        # Outside of the measurement, since the gradients of the last repetition would count as resting otherwise.
        self.module.zero_grad(set_to_none=True)
        with tracker.measure_peak(self.device) as peak:
            begin = time.perf_counter()
            loss = self.step()
            seconds = time.perf_counter() - begin
        if repetition == 0:
            self.result.loss = loss
        self.result.peaks_bytes.append(peak.bytes)
        self.result.steps_seconds.append(seconds)

    def finish(self) -> None:
        self.module.zero_grad(set_to_none=True)


def attempt(result: Result, action: Callable[[], Any]) -> Any:
    """Runs `action`; an exception is noted in `result`, so that one configuration does not end the others' run."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001: anything that a compiler under test may raise
        result.error = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return None


def run_model(name: str, configurations: List[str], options: argparse.Namespace, progress: tqdm) -> List[Result]:
    workload = models.make(name, options.size).to(options.device)
    results: List[Result] = []
    contenders: List[Contender] = []
    for configuration in configurations:
        progress.set_description(f"{name} {configuration}")
        failed = Result(name, configuration)
        contender = attempt(
            failed,
            lambda configuration=configuration: Contender(
                workload, configuration, options.device, options.optimizer
            ),
        )
        if contender is not None:
            contenders.append(contender)
        results.append(failed if contender is None else contender.result)

    for repetition in range(-WARM_UP_STEPS, options.repeats):
        turn = repetition % max(len(contenders), 1)
        for contender in contenders[turn:] + contenders[:turn]:
            if contender.result.error is None:
                progress.set_description(f"{name} {contender.result.configuration}")
                if repetition < 0:
                    attempt(contender.result, contender.warm_up)
                else:
                    attempt(contender.result, lambda: contender.measure(repetition))
                attempt(contender.result, contender.finish)
            progress.update()
    # Configurations that could not be built had no turns.
    progress.update((len(configurations) - len(contenders)) * (WARM_UP_STEPS + options.repeats))

    for result in results:
        if result.error is None:
            result.peak_bytes = statistics.median(result.peaks_bytes)
            result.step_seconds = statistics.median(result.steps_seconds)
            result.disturbed = disturbed(result.steps_seconds)
    base = next((result for result in results if result.configuration == "eager" and result.error is None), None)
    for result in results:
        if base is not None and result.error is None:
            result.peak_ratio = result.peak_bytes / base.peak_bytes
            result.time_ratio = result.step_seconds / base.step_seconds
            result.disturbed = result.disturbed or base.disturbed
    del contenders
    gc.collect()
    return results


def format_table(results: List[Result]) -> str:
    def ratio(value: Optional[float]) -> str:
        return "-" if value is None else f"{value:.3f}"

    lines = [
        f"{'model':<12} {'configuration':<13} {'peak MiB':>10} {'of eager':>9} {'step ms':>10} {'of eager':>9} "
        f"{'loss':>10}"
    ]
    previous = ""
    for result in results:
        if previous and result.model != previous:
            lines.append("")
        name = result.model if result.model != previous else ""
        previous = result.model
        if result.error is not None:
            lines.append(f"{name:<12} {result.configuration:<13} failed: {result.error}")
            continue
        lines.append(
            f"{name:<12} {result.configuration:<13} {result.peak_bytes / 2**20:>10.1f} {ratio(result.peak_ratio):>9} "
            f"{result.step_seconds * 1e3:>10.1f} {ratio(result.time_ratio):>9} {result.loss:>10.5f}"
            f"{' *' if result.disturbed else ''}"
        )
    if any(result.disturbed for result in results):
        lines += ["", "* other work on the machine disturbed these step times: their ratios say nothing, run again"]
    return "\n".join(lines)


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_machine(device: str) -> Dict[str, Any]:
    machine: Dict[str, Any] = {
        "cpu": cpu_model(),
        "logical_cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.startswith("cuda"):
        machine["gpu"] = torch.cuda.get_device_name(device)
        machine["cuda"] = torch.version.cuda
    return machine


def plot_model(results: List[Result], path: Path) -> None:
    """Peak against step time, one labelled point per configuration: left is faster, lower is smaller."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in results if result.error is None]
    if not shown:
        return
    figure, axes = pyplot.subplots(figsize=(7, 5), layout="constrained")
    markers = ["o", "s", "D", "^", "v", "P", "X", "*"]
    for index, result in enumerate(shown):
        # Points can fall onto each other, as those of two equal plans do: hence open markers and a legend, no labels.
        axes.scatter(
            result.step_seconds * 1e3,
            result.peak_bytes / 2**20,
            s=110,
            marker=markers[index % len(markers)],
            facecolors="none",
            edgecolors=f"C{index % 10}",
            linewidths=2,
            label=result.configuration,
            zorder=3,
        )
    base = next((result for result in shown if result.configuration == "eager"), None)
    if base is not None:
        axes.axhline(base.peak_bytes / 2**20, color="C0", linewidth=0.8, linestyle=":")
        axes.axvline(base.step_seconds * 1e3, color="C0", linewidth=0.8, linestyle=":")
    axes.set_xlim(0, 1.1 * max(result.step_seconds for result in shown) * 1e3)
    axes.set_ylim(0, 1.1 * max(result.peak_bytes for result in shown) / 2**20)
    axes.set_xlabel("step time, ms")
    axes.set_ylabel("peak above rest, MiB")
    axes.set_title(shown[0].model)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def parse_arguments(arguments: Optional[List[str]]) -> argparse.Namespace:
    def choice_list(known: List[str]) -> Callable[[str], List[str]]:
        def parse(text: str) -> List[str]:
            names = [name for name in text.split(",") if name]
            unknown = [name for name in names if name not in known]
            if unknown or not names:
                raise argparse.ArgumentTypeError(
                    f"{', '.join(unknown) or 'nothing'} is not among {', '.join(known)}"
                )
            return [name for name in known if name in names]

        return parse

    def positive(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{value} is less than 1")
        return value

    parser = argparse.ArgumentParser(
        description="Measure peak memory and step time of the benchmark models.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names, configurations = list(models.NAMES), list(CONFIGURATIONS)
    parser.add_argument(
        "--models", type=choice_list(names), default=names, metavar="A,B", help=f"some of {','.join(names)}"
    )
    parser.add_argument(
        "--only",
        type=choice_list(configurations),
        default=configurations,
        metavar="A,B",
        help=f"some of {','.join(configurations)}",
    )
    parser.add_argument("--repeats", type=positive, default=9, help="measured steps per configuration")
    parser.add_argument("--size", choices=models.SIZES, default="full")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--optimizer", action="store_true", help="count an SGD step in the time and the peak")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "out", help="folder for the results")
    return parser.parse_args(arguments)


def main(arguments: Optional[List[str]] = None) -> int:
    options = parse_arguments(arguments)
    ours = [name for name in options.only if name not in ("eager", "torchscript")]
    if ours and importlib.util.find_spec("aten_recompute") is None:
        print("the package aten_recompute is not installed: run `make build`, or use --only eager,torchscript")
        return 1
    if options.device.startswith("cpu"):
        try:
            tracker.install()
        except TrackerError as error:
            print(error)
            return 1

    results: List[Result] = []
    steps = len(options.models) * len(options.only) * (options.repeats + WARM_UP_STEPS)
    with tqdm(total=steps, unit="step", dynamic_ncols=True) as progress:
        for name in options.models:
            results += run_model(name, options.only, options, progress)
        progress.set_description("done")

    print(f"\n{format_table(results)}\n")
    options.out.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(options.device)
    report = {
        "machine": machine,
        "size": options.size,
        "device": options.device,
        "repeats": options.repeats,
        "optimizer": options.optimizer,
        "results": [asdict(result) for result in results],
    }
    (options.out / "results.json").write_text(json.dumps(report, indent=2) + "\n")
    for name in options.models:
        plot_model([result for result in results if result.model == name], options.out / f"{name}.png")
    print(f"{machine['cpu']}, {machine['torch_threads']} threads, torch {machine['torch']}; written to {options.out}")
    return 1 if any(result.error is not None for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
