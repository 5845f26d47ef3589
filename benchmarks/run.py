#!/usr/bin/env python3
"""Measures peak memory and step time of the benchmark models: eager PyTorch, stock TorchScript, peers and ours.

    python benchmarks/run.py                                       # as `make bench` does; takes hours
    python benchmarks/run.py --models gpt --only eager,segments --repeats 3 --size small
    python benchmarks/run.py --models gpt,mlp --only eager,peers,ours --budgets 0.5,0.25 --compile-budgets 1,0.5

The groups are eager, torchscript, peers (checkpointing, AOTAutograd's min-cut partitioner and torch.compile, see
peers.py) and ours (the strategies, a sweep of budgets as shares of eager's measured peak, and a budget equal to each
peer's peak). measure.py describes how they are measured. The script reports medians over the repetitions and their
ratios to those of eager.

After each model, it writes ``results.json`` and one picture per model to ``benchmarks/out``. It exits with 1 if a
configuration of ours failed. A peer that fails, or a budget that cannot be reached, is reported and is no error.
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from tqdm import tqdm

from benchmarks import configurations, front, models
from benchmarks.arguments import choice_list, positive, shares
from benchmarks.measure import Options, Result, run_model
from benchmarks.memory import TrackerError, tracker
from benchmarks.plots import plot_model

# PyTorch warns at every call that torch.jit is deprecated, with a DeprecationWarning or, from 2.14 on, a FutureWarning.
warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")


def format_result(result: Result) -> str:
    """Returns the columns of one result after its name."""
    if result.unreachable is not None:
        return f"unreachable: {result.unreachable}"
    if result.error is not None:
        return f"failed: {result.error}"

    def number(value: float | None, width: int, digits: int) -> str:
        return f"{'' if value is None else f'{value:.{digits}f}':>{width}}"

    predicted = None if result.predicted_peak_bytes is None else result.predicted_peak_bytes / 2**20
    columns = [
        number(result.peak_bytes / 2**20, 10, 1),
        number(result.peak_ratio, 9, 3),
        number(result.step_seconds * 1e3, 10, 1),
        number(result.time_ratio, 9, 3),
        number(result.loss, 10, 5),
        number(result.gradient_check, 9, 4),
        number(result.first_step_seconds, 8, 1),
        number(predicted, 10, 1),
        number(result.plan_seconds, 8, 2),
    ]
    marks = (" *" if result.disturbed else "") + (" wrong gradients" if result.wrong_gradients else "")
    return " ".join(columns) + marks


def format_table(results: list[Result]) -> str:
    lines = [
        (
            f"{'model':<12} {'configuration':<22} {'peak MiB':>10} {'of eager':>9} {'step ms':>10} {'of eager':>9} "
            f"{'loss':>10} {'gradient':>9} {'first s':>8} {'predicted':>10} {'plan s':>8}"
        )
    ]
    previous = ""
    for result in results:
        if previous and result.model != previous:
            lines.append("")
        name = result.model if result.model != previous else ""
        previous = result.model
        lines.append(f"{name:<12} {result.configuration:<22} {format_result(result)}".rstrip())
    if any(result.disturbed for result in results):
        lines += ["", "* other work on the machine disturbed these step times: their ratios are meaningless, run again"]
    return "\n".join(lines)


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe_machine(device: str) -> dict[str, Any]:
    machine: dict[str, Any] = {
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


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    def shown(values: Any) -> str:
        return ",".join(f"{value:g}" for value in values)

    parser = argparse.ArgumentParser(description="Measure peak memory and step time of the benchmark models.")
    names, selectable = list(models.NAMES), configurations.selectable(models.NAMES)
    parser.add_argument(
        "--models", type=choice_list(names), default=names, metavar="A,B", help=f"some of {','.join(names)}"
    )
    parser.add_argument(
        "--only",
        type=choice_list(selectable),
        default=list(configurations.GROUPS),
        metavar="A,B",
        help=f"groups or single configurations, some of {','.join(selectable)}",
    )
    parser.add_argument(
        "--budgets",
        type=shares,
        default=configurations.OUR_BUDGETS,
        metavar="X,Y",
        help=f"our budgets as shares of eager's peak (default {shown(configurations.OUR_BUDGETS)})",
    )
    parser.add_argument(
        "--compile-budgets",
        type=shares,
        default=configurations.PEER_BUDGETS,
        metavar="X,Y",
        help="activation memory budgets of torch.compile, which takes up to a minute for each "
        f"(default {shown(configurations.PEER_BUDGETS)})",
    )
    parser.add_argument("--repeats", type=positive, default=9, help="measured steps per configuration (default 9)")
    parser.add_argument("--size", choices=models.SIZES, default="full", help="size of the models (default full)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--optimizer", action="store_true", help="count an SGD step in the time and the peak")
    parser.add_argument(
        "--accumulate",
        action="store_true",
        help="let gradients exist before each step, as if they were accumulated; they then do not count for the peak",
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "out", help="folder for the results")
    return parser.parse_args(arguments)


def write(results: list[Result], machine: dict[str, Any], options: argparse.Namespace) -> None:
    report = {
        "machine": machine,
        "size": options.size,
        "device": options.device,
        "repeats": options.repeats,
        "optimizer": options.optimizer,
        "accumulate": options.accumulate,
        "results": [asdict(result) for result in results],
        "front": front.as_data(front.compare(results)),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(report, indent=2) + "\n")
    for name in dict.fromkeys(result.model for result in results):
        plot_model([result for result in results if result.model == name], options.out / f"{name}.png")


def needs_ours(only: list[str]) -> bool:
    ours = {
        "ours",
        configurations.SWEEP,
        configurations.PARTNERS,
        configurations.INEXACT_PARTNERS,
        *configurations.OURS,
    }
    return not ours.isdisjoint(only)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    if needs_ours(options.only) and importlib.util.find_spec("aten_recompute") is None:
        print("the package aten_recompute is not installed: run `make build`, or use --only eager,torchscript,peers")
        return 1
    if options.device.startswith("cpu"):
        try:
            tracker.install()
        except TrackerError as error:
            print(error)
            return 1

    machine = describe_machine(options.device)
    measuring = Options(
        options.only,
        options.budgets,
        options.compile_budgets,
        options.repeats,
        options.size,
        options.device,
        options.optimizer,
        options.accumulate,
    )
    results: list[Result] = []
    with tqdm(total=0, unit="step", dynamic_ncols=True) as progress:
        for name in options.models:
            results += run_model(name, measuring, progress)
            write(results, machine, options)
        progress.set_description("done")

    print(f"\n{format_table(results)}\n")
    joint = front.format_front(front.compare(results))
    if joint:
        print(f"{joint}\n")
    print(f"{machine['cpu']}, {machine['torch_threads']} threads, torch {machine['torch']}; results in {options.out}")
    return 1 if any(result.error is not None and result.group == "ours" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
