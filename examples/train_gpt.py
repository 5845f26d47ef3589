#!/usr/bin/env python3
"""Trains a character GPT on a text, under a memory budget.

    python examples/train_gpt.py                                 # half of the memory, on the source of Python's library
    python examples/train_gpt.py --budget 64MiB --text book.txt --steps 500
    python examples/train_gpt.py --budget none                   # everything is kept

Prints the loss, what the plan predicts and what a watched step took, and writes the trained model as plain TorchScript,
which loads where this library is not.
"""

import argparse
import importlib.util
import sys
import time
import warnings
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from torch import Tensor

import aten_recompute
from benchmarks.networks.gpt import GPT

warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")

VOCABULARY = 128  # ASCII


def text_of(path: str | None) -> Tensor:
    """Returns the characters of a file, or of the source of some modules of Python, as int64."""
    files = [Path(path)] if path else sorted(Path(argparse.__file__).parent.glob("*.py"))[:60]
    text = "".join(file.read_text(encoding="utf-8", errors="ignore") for file in files)
    return torch.tensor([code for code in text.encode() if code < VOCABULARY])


def batch_of(text: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Returns (batch, length) characters from random places, and the ones after each of them."""
    starts = torch.randint(len(text) - length, (batch,))
    rows = torch.stack([text[start : start + length + 1] for start in starts.tolist()])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def arguments_of(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", default="0.5", help='a share of the peak, bytes such as "64MiB", or "none"')
    parser.add_argument("--text", help="a file to learn; by default the source of Python's library")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--save", default="gpt.pt", help="the file for the trained model")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    arguments = arguments_of(given)
    torch.manual_seed(0)
    try:
        text = text_of(arguments.text)
        if len(text) <= arguments.length:
            raise ValueError(f"the text has {len(text)} characters, and one row takes {arguments.length + 1}")
        model = torch.jit.script(
            GPT(arguments.blocks, arguments.width, heads=4, context=arguments.length, vocabulary=VOCABULARY)
        )
        if arguments.budget == "none":
            aten_recompute.enable(model, "none", profile=True)
        else:
            aten_recompute.enable(model, "budget", memory_budget=arguments.budget)
        train(model, text, arguments)
    except (OSError, ValueError) as error:
        print(f"train_gpt: {error}", file=sys.stderr)
        return 1
    model.save(arguments.save)
    print(f"the trained model is in {arguments.save}")
    return 0


def train(model: torch.jit.ScriptModule, text: Tensor, arguments: argparse.Namespace) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(arguments.steps):
        optimizer.zero_grad()
        loss = model(*batch_of(text, arguments.batch, arguments.length))
        loss.backward()
        optimizer.step()
        if step % max(1, arguments.steps // 10) == 0 or step == arguments.steps - 1:
            print(f"step {step:4}  loss {loss.item():.3f}  {time.perf_counter() - begin:.1f} s")
    variants = aten_recompute.report(model)["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    figures = variants[-1]
    measured = figures.get("measured_peak_bytes")
    print(
        f"peak of a step: predicted {figures['predicted_peak_bytes'] / 2**20:.1f} MiB, "
        + (f"measured {measured / 2**20:.1f} MiB, " if measured else "")
        + f"{figures['unplanned_peak_bytes'] / 2**20:.1f} MiB without recomputation"
    )


if __name__ == "__main__":
    sys.exit(main())
