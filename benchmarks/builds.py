#!/usr/bin/env python3
"""Trains the benchmark models with two builds of this project in turn, to see what a change costs.

    git worktree add ../before <commit> && make -C ../before build
    python benchmarks/builds.py ../before                              # GPT and ResNet-50
    python benchmarks/builds.py ../before --models bert,unet --budgets 0.5 --repeats 15

Each build runs in a process of its own, which waits while the other one steps, so that a busy moment of the machine
affects both. A turn is two steps, of which the second one is measured. Gradients exist when a step begins, and what is
printed is above the memory in use then; with ``--free-gradients``, a step makes them anew. Budgets are shares of
eager's peak, the same bytes for both. Ratios are medians over the pairs of steps. ``eager`` is PyTorch in both
processes: how far its ratio is from 1 says how far ratios of two processes can be trusted.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.append(str(REPOSITORY))  # after the folder of the build that serve() trains with

from benchmarks import models  # noqa: E402  (the path above leads to it)
from benchmarks.arguments import choice_list, positive, shares  # noqa: E402

WARM_UP_STEPS = 3


def serve(model: str, size: str, free_gradients: bool) -> None:
    """Trains `model` with the build whose folder is the first of ``sys.path``, as lines of standard input ask for."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    import torch

    import aten_recompute
    from benchmarks.memory import tracker

    tracker.install()
    torch.manual_seed(0)
    workload = models.make(model, size=size)
    modules: dict[str, Any] = {}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a module prints is no answer

    def clear(module: Any) -> None:
        module.zero_grad(set_to_none=free_gradients)

    def step(module: Any) -> float:
        loss = workload.loss(module)
        loss.backward()
        return float(loss.detach())

    def answer(name: str, options: Any, seed: int) -> dict[str, Any]:
        if name not in modules:
            module = copy.deepcopy(workload.module)
            if options is not None:
                module = aten_recompute.lower(torch.jit.script(module), accumulate=not free_gradients, **options)
            for _ in range(WARM_UP_STEPS):
                clear(module)
                step(module)
            modules[name] = module
        module = modules[name]
        clear(module)
        step(module)
        clear(module)
        torch.manual_seed(seed)
        with tracker.measure_peak() as peak:
            begin = time.perf_counter()
            loss = step(module)
            seconds = time.perf_counter() - begin
        clear(module)
        return {"seconds": seconds, "bytes": peak.bytes, "loss": loss}

    for line in sys.stdin:
        try:
            found = answer(**json.loads(line))
        except (RuntimeError, ValueError) as error:
            found = {"error": str(error).strip().splitlines()[-1]}
        print(json.dumps(found), file=answers, flush=True)


class Build:
    """A process that trains one model with the build in a folder."""

    def __init__(self, folder: Path, model: str, size: str, free_gradients: bool) -> None:
        # This file serves both, so that the steps are alike; everything else is the build's own.
        code = (
            f"import runpy, sys; sys.path[:0] = [{str(folder / 'python')!r}, {str(folder)!r}]; "
            f"runpy.run_path({__file__!r}, run_name='builds')['serve']({model!r}, {size!r}, {free_gradients!r})"
        )
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def step(self, name: str, options: dict[str, Any] | None, seed: int) -> dict[str, Any]:
        """Returns seconds, peak bytes and loss of one step, or the error of a budget that cannot be reached."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"name": name, "options": options, "seed": seed}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the process that trains with one of the builds ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(model: str, builds: Sequence[Build], budgets: Sequence[float], repeats: int) -> None:
    """Prints a row of the table for each way to train the model."""
    plain = [build.step("eager", None, 0) for build in builds]
    options: dict[str, dict[str, Any] | None] = {"eager": None, "none": {"strategy": "none"}}
    for budget in budgets:
        bytes_of_budget = int(budget * plain[0]["bytes"])
        options[f"{budget:g}"] = {"strategy": "budget", "memory_budget": f"{bytes_of_budget}B"}
    steps: dict[str, list[list[dict[str, Any]]]] = {}
    for name, spec in options.items():
        first = [build.step(name, spec, 0) for build in builds]
        for which, found in zip(("before", "now"), first, strict=True):
            if "error" in found:
                print(f"| {model} | {name} | {which}: {found['error']} | | | |")
        if not any("error" in found for found in first):
            steps[name] = []
    for repetition in range(repeats):
        for name, pairs in steps.items():
            pair: list[dict[str, Any]] = [{}, {}]
            for i in (0, 1) if repetition % 2 == 0 else (1, 0):
                pair[i] = builds[i].step(name, options[name], repetition)
            pairs.append(pair)
    for name, pairs in steps.items():
        peaks = [max(pair[i]["bytes"] for pair in pairs) for i in (0, 1)]
        milliseconds = [statistics.median(1e3 * pair[i]["seconds"] for pair in pairs) for i in (0, 1)]
        ratio = statistics.median(now["seconds"] / before["seconds"] for before, now in pairs)
        same = "equal" if all(before["loss"] == now["loss"] for before, now in pairs) else "differ"
        print(
            f"| {model} | {name} | {milliseconds[0]:.1f} and {milliseconds[1]:.1f} | {ratio:.3f} "
            f"| {peaks[0] / 2**20:.2f} and {peaks[1] / 2**20:.2f} | {peaks[1] / peaks[0]:.3f} | {same} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the folder of a checkout of another commit that has been built")
    parser.add_argument(
        "--models", type=choice_list(models.NAMES), default=["gpt", "resnet50"], help="default: gpt,resnet50"
    )
    parser.add_argument("--size", choices=models.SIZES, default="full", help="of the models (default: %(default)s)")
    parser.add_argument("--budgets", type=shares, default=[0.5, 0.28], help="default: 0.5,0.28")
    parser.add_argument("--repeats", type=positive, default=9, help="measured steps of each (default: %(default)s)")
    parser.add_argument("--free-gradients", action="store_true", help="let each step make its gradients")
    options = parser.parse_args()
    before = options.before.resolve()
    if not list(before.glob("build/libaten_recompute.so")):
        parser.error(f"{before} has no build/libaten_recompute.so: run `make build` there")
    print("| model | plan | ms, before and now | ratio | peak in MiB | ratio | losses |\n|---|---|---|---|---|---|---|")
    for model in options.models:
        builds = [Build(folder, model, options.size, options.free_gradients) for folder in (before, REPOSITORY)]
        compare(model, builds, options.budgets, options.repeats)
        for build in builds:
            build.close()


if __name__ == "__main__":
    main()
