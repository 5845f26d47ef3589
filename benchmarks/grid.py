"""Peak and time of a functional over a grid, whose energy is a sum over points and whose potential is its gradient.

    python benchmarks/grid.py                       # ten times the grid under the memory of eager PyTorch
    python benchmarks/grid.py --points 8000 --times 20

The budget is what eager PyTorch takes for a grid of ``--points``; the network then runs over ``--times`` as many, with
``exact=False``, so that the points run slice by slice. Columns are the peak of the first and of a later step, the time
of a later step relative to eager PyTorch's with as many points (CPU time, medians of seven in turn), and the largest
differences from it, relative to the energy and to the largest potential.
"""

import argparse
import copy
import statistics
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import aten_recompute  # noqa: E402
from benchmarks.memory import tracker  # noqa: E402
from benchmarks.timing import processor_time  # noqa: E402


class Functional(nn.Module):
    def __init__(self, features: int = 8, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 1)

    def forward(self, features: Tensor, weights: Tensor) -> Tensor:
        h = F.silu(self.first(torch.log(features.abs() + 1e-4)))
        for layer in self.layers:
            h = h + F.silu(layer(self.norm(h)))
        return torch.sum(self.last(h).squeeze(-1) * features[:, 0] * weights)


class Step:
    """One call of the functional with its potential: bytes, seconds, and both results."""

    def __init__(self, functional: nn.Module, points: int) -> None:
        generator = torch.Generator().manual_seed(1)
        features = torch.rand(points, 8, generator=generator).requires_grad_()
        weights = torch.rand(points, generator=generator)
        with tracker.measure_peak() as peak, processor_time() as elapsed:
            energy = functional(features, weights)
            energy.backward()
        assert features.grad is not None
        self.bytes, self.seconds = peak.bytes, elapsed.seconds
        self.energy, self.potential = energy.detach(), features.grad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--points", type=int, default=4000, help="of the grid that sets the budget (default: %(default)s)"
    )
    parser.add_argument("--times", type=int, default=10, help="so many times as many are run (default: %(default)s)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tracker.install()
    eager = Functional().requires_grad_(False)
    budget = Step(eager, arguments.points).bytes
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=budget, exact=False)
    points = arguments.points * arguments.times
    first = Step(lowered, points).bytes
    for _ in range(3):
        Step(lowered, points)
    pairs = [(Step(lowered, points), Step(eager, points)) for _ in range(7)]
    ours, theirs = pairs[-1]
    ratio = statistics.median(mine.seconds for mine, _ in pairs) / statistics.median(
        other.seconds for _, other in pairs
    )
    energy = float((ours.energy - theirs.energy).abs() / theirs.energy.abs())
    potential = float((ours.potential - theirs.potential).abs().max() / theirs.potential.abs().max())
    print("| points | budget | first step | later | eager | time | energy off by | potential off by |")
    print("|---|---|---|---|---|---|---|---|")
    sizes = " | ".join(f"{each / 2**20:.1f} MiB" for each in (budget, first, ours.bytes, theirs.bytes))
    print(f"| {points} | {sizes} | {ratio:.2f} | {energy:.0e} | {potential:.0e} |")


if __name__ == "__main__":
    main()
