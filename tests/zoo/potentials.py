"""Compares interatomic potentials with eager PyTorch in all ways of using them: ``python -m zoo.potentials``.

Energies, forces, stresses and the gradients of parameters of a loss on these, for systems of several sizes, of modules
that are lowered, planned in place, and saved and loaded in C++ without Python. The C++ program is the target
aten_recompute_zoo_step of the build.
"""

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

import aten_recompute

from .compare import Row, describe, relative_difference
from .models import MODELS, Inputs, Model

POTENTIALS = (
    *("schnet_forces", "painn_forces", "torchani_forces", "nequip_forces", "mace_forces", "mace_stress"),
    "tensornet_forces",
)
# The largest relative difference that may be.
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}
STEPS = 3
PROGRAM = Path(aten_recompute.library_path()).with_name("aten_recompute_zoo_step")

Seen = dict[str, Tensor]


def of_type(model: Model, dtype: torch.dtype) -> Model:
    """Returns the model with parameters and buffers of the type."""
    return dataclasses.replace(model, make=lambda: model.make().to(dtype))


def inputs_of(model: Model, atoms: int, dtype: torch.dtype) -> Inputs:
    torch.manual_seed(1)
    make: Any = model.inputs
    inputs: Inputs = make(atoms)
    return tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)


def step(module: nn.Module, inputs: Inputs) -> Seen:
    """Returns results, and gradients of a loss on those that require one; tests/zoo/step.cpp does the same."""
    module.zero_grad()
    results = list(module(*(each.clone() for each in inputs)))
    sum(((each - 0.1) ** 2).sum() for each in results if each.requires_grad).backward()
    seen = {f"result {i}": each.detach() for i, each in enumerate(results)}
    return seen | {name: each.grad for name, each in module.named_parameters() if each.grad is not None}


@dataclass
class Difference:
    results: float  # of energies, of forces or of stresses, whichever differs most
    gradients: float  # of all parameters together
    worst_gradient: float  # of one parameter, be its gradient as small as it may

    @classmethod
    def between(cls, ours: Seen, expected: Seen) -> "Difference":
        if ours.keys() != expected.keys():
            raise ValueError(f"{', '.join(sorted(ours.keys() ^ expected.keys()))}: only one has it")
        each = {name: relative_difference({name: ours[name]}, {name: expected[name]}) for name in expected}
        results = [name for name in expected if name.startswith("result ")]
        parameters = [name for name in expected if name not in results]
        return cls(
            max(each[name] for name in results),
            relative_difference({**ours}, {name: expected[name] for name in parameters}),
            max(each[name] for name in parameters),
        )

    def cells(self) -> list[str]:
        return [f"{each:.1e}" for each in (self.results, self.gradients, self.worst_gradient)]


def in_cpp(module: torch.jit.ScriptModule, inputs: Inputs) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}.pt" for name in ("module", "inputs", "results")]
        module.save(files[0])
        torch.save(inputs, files[1])
        done = subprocess.run([PROGRAM, *files], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"{PROGRAM} ended with status {done.returncode}")
        seen: Seen = torch.load(files[2], weights_only=False)  # a dict of C++ names its type
    return seen


@dataclass
class Outcome:
    difference: Difference  # from eager, the largest of the steps
    regions: list[int] = field(default_factory=list)  # of each specialization; in C++, nobody asks
    on_tape: list[str] = field(default_factory=list)

    def holds(self, dtype: torch.dtype) -> bool:
        largest = max(self.difference.results, self.difference.gradients)
        return largest <= TOLERANCES[dtype] and set(self.regions) <= {1} and not self.on_tape

    def cells(self) -> list[str]:
        lists = [", ".join(map(str, each)) or "-" for each in (self.regions, self.on_tape)]
        return self.difference.cells() + lists


def options_of(budget: float | None) -> dict[str, Any]:
    if budget is None:
        return {"strategy": "none"}
    return {"strategy": "budget", "memory_budget": budget, "unreachable": "leanest", "exact": True}


def distance_to_float64(model: Model, atoms: int) -> Difference:
    """Returns how far eager PyTorch's step in float32 is from the same step in float64."""
    steps = [step(of_type(model, dtype).fresh().train(), inputs_of(model, atoms, dtype)) for dtype in TOLERANCES]
    return Difference.between(*steps)


def outcomes(model: Model, atoms: int, dtype: torch.dtype, budget: float | None) -> dict[str, Outcome]:
    inputs = inputs_of(model, atoms, dtype)
    model = of_type(model, dtype)
    expected = step(model.fresh().train(), inputs)
    options = options_of(budget)

    def lower() -> torch.jit.ScriptModule:
        return aten_recompute.lower(model.program().train(), **options)

    def enable() -> torch.jit.ScriptModule:
        module = model.program().train()
        aten_recompute.enable(module, **options)
        return module

    def in_steps(module: torch.jit.ScriptModule) -> Outcome:
        differences = [Difference.between(step(module, inputs), expected) for _ in range(STEPS)]
        largest = [max(cells) for cells in zip(*map(dataclasses.astuple, differences), strict=True)]
        row = Row(model.name)
        describe(row, module)
        return Outcome(Difference(*largest), row.regions, sorted(row.on_tape))

    return {
        "lowered": in_steps(lower()),
        "enabled": in_steps(enable()),
        "loaded in C++": Outcome(Difference.between(in_cpp(lower(), inputs), expected)),
    }


COLUMNS = (
    *("potential", "atoms", "type", "way", "results", "gradients", "worst gradient of one parameter"),
    *("regions", "on tape"),
)


def write(*cells: Any) -> None:
    tqdm.write("| " + " | ".join(map(str, cells)) + " |")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo.potentials", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(POTENTIALS)} (default all)")
    parser.add_argument("--atoms", type=int, nargs="+", default=[20, 200, 2000], help="(default: %(default)s)")
    parser.add_argument("--types", nargs="+", default=["float32", "float64"], choices=["float32", "float64"])
    parser.add_argument("--budgets", type=float, nargs="*", default=[], help="fractions, beside no recomputation")
    options = parser.parse_args()
    names = options.names or list(POTENTIALS)
    if unknown := set(names) - set(POTENTIALS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(POTENTIALS)}")
    if not PROGRAM.exists():
        parser.error(f"{PROGRAM} is missing: cmake --build {PROGRAM.parent} --target {PROGRAM.name}")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # several threads add the gradients of equal indices in any order
    cases = [(name, atoms, getattr(torch, each)) for name in names for atoms in options.atoms for each in options.types]
    print(f"| {' | '.join(COLUMNS)} |\n" + "|---" * len(COLUMNS) + "|")
    failed = False
    for name, atoms, dtype in tqdm(cases, disable=None):
        model, case = MODELS[name], (name, atoms, str(dtype).removeprefix("torch."))
        if dtype is torch.float32:
            write(*case, "eager, from float64", *distance_to_float64(model, atoms).cells(), "-", "-")
        for budget in [None, *options.budgets]:
            for way, outcome in outcomes(model, atoms, dtype, budget).items():
                failed |= not outcome.holds(dtype)
                write(*case, way if budget is None else f"{way}, budget {budget}", *outcome.cells())
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
