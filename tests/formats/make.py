#!/usr/bin/env python3
"""Writes the files of this folder with the version of aten_recompute that Python imports.

python tests/formats/make.py tests/formats/0.2
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aten_recompute
from formats.network import Network, inputs

FRACTION = 0.6  # of the peak without recomputation


def make(folder: Path) -> None:
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    eager = Network()
    budget = {"strategy": "budget", "memory_budget": FRACTION, "cost_model": "flops"}

    def lowered(spec: dict[str, Any]) -> torch.jit.ScriptModule:
        return aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), spec)

    def save(module: torch.jit.ScriptModule, name: str) -> None:
        # .pt is what a program writes and no repository keeps.
        module.save(str(folder / f"{name}.torchscript"))

    # Each is saved before it has run, so that all have the same weights and buffers.
    specs: dict[str, dict[str, Any]] = {
        "all": {"strategy": "all"},
        "budget": budget,
        "segments": {"strategy": "segments"},
    }
    for name, spec in specs.items():
        save(lowered(spec), name)
    trained = lowered(budget)
    trained(inputs()).backward()
    aten_recompute.save_plan(trained, folder / "plan.json")
    save(lowered({"plan": str(folder / "plan.json")}), "plan")
    (folder / "problem.json").write_text(json.dumps(aten_recompute.problems(trained)[0]) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
