#!/usr/bin/env python3
"""Trains for a long time with shapes, modes, budgets and threads that change, and tells whether the process grows.

    tools/soak.py                          # 20,000 steps
    tools/soak.py --steps 2000 --seed 7
    tools/soak.py --threads 8 --seconds 60

Small networks (a GPT, convolutions with batch norm, a potential with forces, a loop whose length data decide) are
lowered under several strategies. Each step takes one of them at random, with a batch of a random size, in training or
evaluation, under autocast or not; now and then, a module is lowered anew under another budget, saved and loaded, asked
for its report, or its memory is released. Gradients are compared with eager PyTorch's in one step of fifty.

The resident memory, after everything that may be given back was given back, is read ten times. The exit status is 1 if
it grew by more than 1 % and 4 MiB after the first fifth of 10,000 or more steps, if file descriptors were lost, if a
module holds more compiled variants than its options allow, or if a gradient was wrong.
"""

import argparse
import contextlib
import copy
import ctypes
import gc
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

os.environ.setdefault("RECOMPUTE_LOG_LEVEL", "error")

import torch
from torch import Tensor, nn
from tqdm import tqdm

import aten_recompute
from benchmarks.networks.gpt import GPT

STRATEGIES: tuple[dict[str, Any], ...] = (
    {"strategy": "none"},
    {"strategy": "all"},
    {"strategy": "segments"},
    {"strategy": "min_cut"},
    *({"strategy": "budget", "memory_budget": share, "unreachable": "leanest"} for share in (0.9, 0.7, 0.5, 0.3)),
    {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest", "cost_model": "flops", "of": "largest"},
)
READINGS = 10
SETTLED = 10_000  # steps, until each network has been lowered and run in most of the ways that there are


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(4))
        )

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.layers(x).square().mean()
        return loss


class Potential(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 16)
        self.outer = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        leaf = x.detach().clone().requires_grad_(True)
        energy = self.outer(torch.tanh(self.inner(leaf))).sum()
        force = torch.autograd.grad([energy], [leaf], create_graph=True)[0]
        assert force is not None
        loss: Tensor = energy.square() + force.square().sum()
        return loss


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(4):
            x = torch.tanh(self.layer(x)) + x
            if float(x.detach().sum()) > 0 and i > 1:
                break
        return x.square().mean()


def inputs_of(name: str, size: int) -> tuple[Tensor, ...]:
    if name == "gpt":
        return torch.randint(32, (size, 16)), torch.randint(32, (size, 16))
    return (torch.randn(*{"convolutions": (size, 8, 8, 8), "potential": (4 * size, 3), "loop": (size, 16)}[name]),)


def networks() -> dict[str, nn.Module]:
    gpt = GPT(blocks=2, width=16, heads=2, context=16, vocabulary=32)
    return {"gpt": gpt, "convolutions": Convolutions(), "potential": Potential(), "loop": Loop()}


@dataclass
class Trained:
    """A lowered module, beside the eager one that it was made of."""

    name: str
    eager: nn.Module
    lowered: Any


def lower_one(name: str, chance: random.Random) -> Trained:
    eager = networks()[name]
    scripted = torch.jit.script(copy.deepcopy(eager))
    return Trained(name, eager, aten_recompute.lower(scripted, dict(chance.choice(STRATEGIES))))


def step(trained: Trained, chance: random.Random, seed: int, compares: bool) -> str:
    """Makes one step, and returns what is wrong with it."""
    lowered = trained.lowered
    inputs = inputs_of(trained.name, chance.choice((1, 2, 3, 4, 6, 8)))
    training = chance.random() < 0.8
    cast = chance.random() < 0.1 and trained.name in ("gpt", "loop")

    def run(module: Any) -> list[Tensor | None]:
        module.train(training)
        module.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        with torch.autocast("cpu", torch.bfloat16) if cast else contextlib.nullcontext():
            loss = module(*inputs)
        loss.backward()
        return [loss.detach(), *(parameter.grad for parameter in module.parameters())]

    if compares:
        trained.eager.load_state_dict(lowered.state_dict())
        expected = run(trained.eager)
    results = run(lowered)
    if compares:
        for a, b in zip(results, expected, strict=True):
            if (a is None) != (b is None) or (a is not None and b is not None and not torch.equal(a, b)):
                return f"{trained.name}: a gradient differs from eager's"
    return ""


def change(trained: Trained, chance: random.Random, folder: str) -> Trained:
    """Does something else with a module than training it."""
    what = chance.randrange(5)
    if what == 0:
        return lower_one(trained.name, chance)
    if what == 1:
        path = os.path.join(folder, f"{threading.get_ident()}.pt")
        trained.lowered.save(path)
        load: Any = torch.jit.load
        return Trained(trained.name, trained.eager, load(path))
    if what == 2:
        str(aten_recompute.report(trained.lowered))
    elif what == 3:
        aten_recompute.release_memory()
    else:
        trained.lowered = aten_recompute.lower(aten_recompute.unlower(trained.lowered), "segments")
    return trained


def resident_mib() -> float:
    gc.collect()
    aten_recompute.release_memory()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


class Soak:
    """Threads that train modules of their own."""

    def __init__(self, seed: int, threads: int, folder: str) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.chances = [random.Random(f"{seed} {i}") for i in range(threads)]
        self.modules = [[lower_one(name, chance) for name in networks()] for chance in self.chances]

    def run(self, thread: int, steps: int, deadline: float, bar: Any) -> None:
        chance, modules = self.chances[thread], self.modules[thread]
        for _ in range(steps):
            if self.problems or time.monotonic() > deadline:
                return
            i = chance.randrange(len(modules))
            try:
                if chance.random() < 0.02:
                    modules[i] = change(modules[i], chance, self.folder)
                # The random state is the process's, so with several threads dropouts are not those of eager.
                compares = chance.random() < 0.02 and len(self.chances) == 1
                problem = step(modules[i], chance, chance.randrange(1 << 30), compares)
            except Exception as error:
                problem = f"{modules[i].name}: {type(error).__name__}: {error}"
            if problem:
                self.problems.append(problem)
            bar.update()

    def run_all(self, steps: int, deadline: float, bar: Any) -> None:
        count = len(self.modules)
        threads = [threading.Thread(target=self.run, args=(i, steps // count, deadline, bar)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check_variants(self) -> None:
        for trained in (each for modules in self.modules for each in modules):
            for method in aten_recompute.report(trained.lowered)["methods"]:
                if len(method["specialisations"]) > 64:
                    self.problems.append(f"{trained.name}: {len(method['specialisations'])} specialisations")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of all threads (default 20000)")
    parser.add_argument("--threads", type=int, default=1, help="threads that train at once (default 1)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time")
    parser.add_argument("--seed", type=int, default=1, help="seed of the choices (default 1)")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    deadline = time.monotonic() + options.seconds
    readings: list[tuple[int, float, int]] = []
    with tempfile.TemporaryDirectory() as folder, tqdm(total=options.steps, unit="step", disable=None) as bar:
        soak = Soak(options.seed, options.threads, folder)
        for i in range(READINGS):
            soak.run_all(options.steps // READINGS, deadline, bar)
            readings.append(((i + 1) * (options.steps // READINGS), resident_mib(), open_files()))
            if soak.problems or time.monotonic() > deadline:
                break
        soak.check_variants()
    for steps, mib, files in readings:
        print(f"{steps:>8} steps  {mib:>8.1f} MiB resident  {files:>4} open files")
    settled = readings[1:] or readings
    growth = settled[-1][1] - settled[0][1]
    if options.steps >= SETTLED and growth > max(4.0, 0.01 * settled[0][1]):
        soak.problems.append(f"resident memory grew by {growth:.1f} MiB after the first fifth")
    if settled[-1][2] > settled[0][2]:
        soak.problems.append(f"{settled[-1][2] - settled[0][2]} file descriptors were lost")
    for problem in soak.problems:
        print(problem, file=sys.stderr)
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
