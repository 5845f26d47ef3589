"""Makes the pictures of docs/drawings.md from the models of the benchmarks.

python docs/images/drawings.py
"""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "python")]

import aten_recompute  # noqa: E402
from benchmarks.models import make  # noqa: E402


def main() -> None:
    workload = make("gpt")
    lowered = aten_recompute.lower(torch.jit.script(workload.module), "budget", memory_budget=0.25, cost_model="flops")
    workload.step(lowered)
    aten_recompute.draw(lowered, HERE / "gpt_joint.svg")
    aten_recompute.draw(lowered, HERE / "gpt_timeline.png", "timeline")


if __name__ == "__main__":
    main()
