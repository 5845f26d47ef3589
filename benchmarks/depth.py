#!/usr/bin/env python3
"""How the first forward of a network grows with its number of layers, and which passes take how much of it.

    python benchmarks/depth.py                                         # 100 to 1600 layers, strategy none
    python benchmarks/depth.py --strategies none,flops,measured --layers 100,400

``flops`` and ``measured`` are a budget of half the peak with that cost model. Each figure comes from a process of its
own, with one thread, and is CPU time, so that a busy machine disturbs it less. The layers are small: what is timed is
compiling, not computing. The last column has the passes with the largest shares of the elapsed time, and what is left
when all passes are subtracted: making the programs that run, and the forward itself. The time per layer rises a little
once the graphs no longer fit into caches.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks.arguments import choice_list, positive

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "flops": {"strategy": "budget", "memory_budget": 0.5, "cost_model": "flops"},
    "measured": {"strategy": "budget", "memory_budget": 0.5},
}
WIDTH = 16


class Deep(nn.Module):
    """A residual network of `layers` equal layers that returns its loss."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + 0.1 * torch.tanh(layer(x))
        return x.square().mean()


def measure(layers: int, strategy: str) -> dict[str, Any]:
    """Returns the seconds of the first forward, CPU time and elapsed, and the milliseconds of each pass."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        os.environ.update(RECOMPUTE_LOG_LEVEL="DEBUG", RECOMPUTE_LOG_FILE=str(log))
        import aten_recompute

        torch.set_num_threads(1)
        lowered = aten_recompute.lower(torch.jit.script(Deep(layers)), STRATEGIES[strategy])
        x = torch.randn(64, WIDTH)
        begin, elapsed = time.process_time(), time.perf_counter()
        loss = lowered(x)
        forward = time.process_time() - begin
        elapsed = time.perf_counter() - elapsed
        loss.backward()
        backward = time.process_time() - begin - forward
        passes: dict[str, float] = {}
        for name, milliseconds in re.findall(r"\[debug\] (?:\[\w+\] )?(\w+): ([\d.]+) ms", log.read_text()):
            passes[name] = passes.get(name, 0.0) + float(milliseconds)
    return {"forward": forward, "elapsed": elapsed, "backward": backward, "passes": passes}


def shares(result: dict[str, Any], count: int = 6) -> str:
    """Returns the largest passes with their shares of the time of the first forward."""
    # It is a part of `differentiate`, so it must not be subtracted twice.
    passes = dict(result["passes"])
    passes["differentiate"] = passes.get("differentiate", 0.0) - passes.get("hoist_metadata", 0.0)
    total = 1e3 * result["elapsed"]
    passes["rest"] = max(0.0, total - sum(passes.values()))
    largest = sorted(passes.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in largest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=lambda text: [positive(each) for each in text.split(",")], metavar="N,M",
                        default=[100, 200, 400, 800, 1600])  # fmt: skip
    parser.add_argument("--strategies", type=choice_list(tuple(STRATEGIES)), default=["none"], metavar="A,B")
    parser.add_argument("--one", nargs=2, metavar=("LAYERS", "STRATEGY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(int(options.one[0]), options.one[1])))
        return 0

    lines = [f"{'strategy':<9} {'layers':>6} {'forward s':>9} {'ms / layer':>10} {'backward s':>10}  passes"]
    with tqdm(total=len(options.strategies) * len(options.layers), unit="process", disable=None) as progress:
        for strategy in options.strategies:
            for layers in options.layers:
                progress.set_description(f"{strategy} {layers}")
                command = [sys.executable, __file__, "--one", str(layers), strategy]
                output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                result = json.loads(output.splitlines()[-1])
                lines.append(
                    f"{strategy:<9} {layers:>6} {result['forward']:>9.2f} {1e3 * result['forward'] / layers:>10.2f} "
                    f"{result['backward']:>10.2f}  {shares(result)}"
                )
                progress.write(lines[-1])
                progress.update()
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
