#!/usr/bin/env python3
"""Trains a small ResNet on scikit-learn's handwritten digits, eager and under a memory budget, from equal weights.

    python examples/train_resnet.py
    python examples/train_resnet.py --budget 0.3 --epochs 5

Both see the same batches. Prints loss, accuracy on digits that were held back, and the peak memory; exits with 1 if the
parameters of the two differ in a bit, or the peak is above the budget.
"""

import argparse
import copy
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.networks.resnet import ResNet

warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")


def digits(edge: int) -> tuple[Tensor, Tensor]:
    """Returns 1,797 digits as images (n, 3, edge, edge) in [0, 1] and their labels (n,)."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    images = nn.functional.interpolate(images, size=(edge, edge), mode="bilinear")
    return images.expand(-1, 3, -1, -1).contiguous(), torch.tensor(data.target, dtype=torch.int64)


def batches(images: Tensor, labels: Tensor, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    for begin in range(0, len(order) - size + 1, size):  # all batches are whole: batch norm sees equal numbers
        chosen = order[begin : begin + size]
        yield images[chosen], labels[chosen]


def train(module: nn.Module, images: Tensor, labels: Tensor, arguments: argparse.Namespace) -> float:
    """Returns the loss of the last batch."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    loss = torch.zeros(())
    for epoch in range(arguments.epochs):
        for x, y in batches(images, labels, arguments.batch, seed=epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
    return loss.item()


def accuracy(module: nn.Module, images: Tensor, labels: Tensor) -> float:
    module.eval()
    with torch.no_grad():
        return (module(images).argmax(1) == labels).float().mean().item()


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", default="0.4", help='a share of the peak, or bytes such as "64MiB"')
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--edge", type=int, default=32, help="pixels of an image's edge")
    parser.add_argument("--images", type=int, default=1500, help="images to train on; the rest is held back")
    arguments = parser.parse_args(given)
    torch.manual_seed(0)
    images, labels = digits(arguments.edge)
    seen, held_back = slice(arguments.images), slice(arguments.images, None)

    eager = ResNet(blocks=(1, 1, 1, 1), width=arguments.width, classes=10)
    try:
        lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=arguments.budget)
        losses = [train(module, images[seen], labels[seen], arguments) for module in (eager, lowered)]
    except ValueError as error:
        print(f"train_resnet: {error}", file=sys.stderr)
        return 1
    equal = all(
        torch.equal(a, b) for a, b in zip(eager.state_dict().values(), lowered.state_dict().values(), strict=True)
    )
    variants = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    peak, whole = variants[-1]["measured_peak_bytes"], variants[-1]["unplanned_peak_bytes"]
    print(f"loss: eager {losses[0]:.4f}, lowered {losses[1]:.4f}; parameters and statistics are", end=" ")
    print("equal to the bit" if equal else "NOT equal")
    print(f"accuracy on digits that were held back: {accuracy(lowered, images[held_back], labels[held_back]):.3f}")
    print(f"peak of a step: {peak / 2**20:.1f} MiB, {peak / whole:.2f} of that without recomputation")
    kept = variants[-1]["predicted_peak_bytes"] * 1.01 >= peak
    return 0 if equal and kept else 1


if __name__ == "__main__":
    sys.exit(main())
