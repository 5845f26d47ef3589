"""``python -m hostile.make_corpus`` writes the plans and problems of the corpus anew, from small networks."""

import json
import os
from pathlib import Path
from typing import Any

import torch

import aten_recompute
from failing_memory.scenes import SCENES
from support.nets import Residual

CORPUS = Path(__file__).parent / "corpus"
BUDGETS = (0.9, 0.8, 0.7, 0.6, 0.1)


def main() -> None:
    for name in ("convolutions", "forces", "regions"):
        scene = SCENES[name]
        lowered = aten_recompute.lower(torch.jit.script(scene.eager()), **scene.options)
        for _ in range(3):
            scene.run(lowered, scene.inputs())
        (CORPUS / "problem" / f"{name}.json").write_text(json.dumps(aten_recompute.problems(lowered)[-1]))
    for budget in BUDGETS:
        torch.manual_seed(0)
        options: dict[str, Any] = {"memory_budget": budget, "unreachable": "leanest", "cost_model": "flops"}
        lowered = aten_recompute.lower(torch.jit.script(Residual(8)), "budget", **options)
        for _ in range(3):
            lowered(torch.randn(64, 8)).square().mean().backward()
        (CORPUS / "plan" / f"budget_{int(100 * budget)}.json").write_text(torch.ops.aten_recompute.plan(lowered._c))
        (CORPUS / "plan" / "of.problem").write_text(json.dumps(aten_recompute.problems(lowered)[-1]))


if __name__ == "__main__":
    os.environ["RECOMPUTE_LOGS"] = "all=error"  # some budgets are out of reach
    torch.set_num_threads(1)
    main()
