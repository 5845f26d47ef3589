#!/usr/bin/env python3
"""Writes the plans of the benchmark models, so that two commits can be compared.

    python benchmarks/plans.py before/                      # all models, small
    python benchmarks/plans.py after/
    diff -r before after

There is one file per model and strategy; a budget that cannot be reached has a file with the error. Budgets are planned
with seconds that come from sizes (``cost_model="flops"``), so these plans depend on the code alone. The other
strategies do not look at seconds, which are measured for them and are left out of their files.
"""

import argparse
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from tqdm import tqdm

import aten_recompute
from benchmarks import models
from benchmarks.arguments import choice_list

warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)

BUDGETS = (1.0, 0.7, 0.5, 0.35, 0.25)
STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none", "profile": True},
    "all": {"strategy": "all", "profile": True},
    "segments": {"strategy": "segments"},
    "min_cut": {"strategy": "min_cut"},
    **{
        f"budget_{budget}": {"strategy": "budget", "memory_budget": budget, "cost_model": "flops"} for budget in BUDGETS
    },
}


def write_plan(path: Path, model: str, size: str, options: dict[str, Any]) -> None:
    """Trains one step of the model under the options and writes the plan that it followed to ``path``."""
    torch.manual_seed(0)
    workload = models.make(model, size=size)
    lowered = aten_recompute.lower(torch.jit.script(workload.module), **options)
    try:
        workload.step(lowered)
    except RuntimeError as error:
        path.with_suffix(".error").write_text(f"{error}\n")
        return
    aten_recompute.save_plan(lowered, str(path))
    if "cost_model" in options:
        return
    plan = json.loads(path.read_text())
    for region in plan["regions"]:
        region.pop("seconds", None)
        region.pop("recompute_seconds", None)
    path.write_text(json.dumps(plan, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the plans are written")
    parser.add_argument("--models", type=choice_list(models.NAMES), default=list(models.NAMES))
    parser.add_argument("--size", choices=("small", "full"), default="small")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = [(model, name) for model in arguments.models for name in STRATEGIES]
    for model, name in tqdm(runs):
        write_plan(arguments.folder / f"{model}_{name}.json", model, arguments.size, STRATEGIES[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
