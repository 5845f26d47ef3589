#!/usr/bin/env python3
"""What a lowered module adds to the memory of the process for its whole life, beside its tensors.

    python benchmarks/kept.py                                 # residual networks of 4 and of 24 blocks
    python benchmarks/kept.py --modes stock,none --blocks 100

Each row comes from a process of its own, with one thread. It makes some modules, trains each of them for one step, and
then for several more; the figures are what resident memory grew by, in KiB for one module, when garbage was collected
and freed heap was given back. A first module, which is trained before, pays for what a process needs once. ``stock`` is
TorchScript without this library, and ``budget`` is 0.7 of the peak. The last column is what is still there per module
after all of them are gone; what ``torch.jit`` compiles is never freed (docs/behavior.md).
"""

import argparse
import ctypes
import gc
import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.arguments import choice_list, positive

MODES: dict[str, dict[str, Any] | None] = {
    "stock": None,
    "none": {"strategy": "none"},
    "budget": {"strategy": "budget", "memory_budget": 0.7, "cost_model": "flops"},
}
WIDTH = 16
BATCH = 512
STEPS = 4


class Block(nn.Module):
    """A residual block of two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(x)))


class Network(nn.Module):
    """Some residual blocks, and a loss."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x).square().mean()


def _make(mode: str, blocks: int) -> nn.Module:
    import aten_recompute

    scripted = torch.jit.script(Network(blocks))
    options = MODES[mode]
    return scripted if options is None else aten_recompute.lower(scripted, options)


def _train(module: nn.Module) -> None:
    module(torch.randn(BATCH, WIDTH)).backward()
    module.zero_grad(set_to_none=True)


def _resident_kib() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024


def measure(mode: str, blocks: int, count: int) -> dict[str, float]:
    """Returns the KiB per module that stay at each stage."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    torch.set_num_threads(1)
    warm = _make(mode, blocks)
    for _ in range(STEPS):
        _train(warm)
    levels = [_resident_kib()]
    modules = [_make(mode, blocks) for _ in range(count)]
    levels.append(_resident_kib())
    for steps in (1, STEPS):
        for _ in range(steps):
            for module in modules:
                _train(module)
        levels.append(_resident_kib())
    del module
    modules.clear()
    levels.append(_resident_kib())
    made, first, later, freed = ((after - before) / count for before, after in itertools.pairwise(levels))
    return {"made": made, "first": first, "later": later, "gone": made + first + later + freed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=lambda text: [positive(each) for each in text.split(",")], metavar="N,M",
                        default=[4, 24])  # fmt: skip
    parser.add_argument("--modes", type=choice_list(tuple(MODES)), default=list(MODES), metavar="A,B")
    parser.add_argument("--modules", type=positive, default=20, help="how many are made (default: %(default)s)")
    parser.add_argument("--one", nargs=2, metavar=("MODE", "BLOCKS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), options.modules)))
        return 0

    lines = [
        "KiB that stay per module",
        f"{'mode':<8} {'blocks':>6} {'made':>8} {'1st step':>8} {'later':>8} {'gone':>8}",
    ]
    with tqdm(total=len(options.modes) * len(options.blocks), unit="process", disable=None) as progress:
        for mode in options.modes:
            for blocks in options.blocks:
                progress.set_description(f"{mode} {blocks}")
                command = [sys.executable, __file__, "--one", mode, str(blocks), "--modules", str(options.modules)]
                output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                result = json.loads(output.splitlines()[-1])
                lines.append(f"{mode:<8} {blocks:>6} " + " ".join(f"{value:>8.0f}" for value in result.values()))
                progress.update()
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
