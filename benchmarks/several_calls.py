"""Peaks of steps with several calls before one backward, and with several backwards, under a budget in bytes.

    python benchmarks/several_calls.py                      # all steps at 0.6 and 0.4 of eager PyTorch's peak
    python benchmarks/several_calls.py siamese --shares 0.5

Every module of a step is lowered alone, with the budget of the whole step. Columns are eager PyTorch's peak, the peaks
of the first, the second and later steps as shares of the budget, and the time of a later step relative to eager
PyTorch's (CPU time, medians of seven in turn). Gradients are compared with eager PyTorch's, bit by bit.
"""

import argparse
import copy
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import aten_recompute  # noqa: E402
from benchmarks.memory import tracker  # noqa: E402
from benchmarks.networks.resnet import ResNet  # noqa: E402
from benchmarks.timing import processor_time  # noqa: E402

Modules = list[Any]
Step = Callable[..., None]


class Layers(nn.Module):
    """Linear layers with normalization: (rows, inputs) to (rows, outputs)."""

    def __init__(self, inputs: int, outputs: int, width: int = 64, depth: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
        )
        self.last = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.last(h)


def images(count: int, size: int) -> Tensor:
    return torch.randn(count, 3, size, size)


def siamese(modules: Modules, inputs: list[Tensor]) -> None:
    (encoder,) = modules
    first, second = (F.normalize(encoder(x), dim=1) for x in inputs)
    (1 - (first * second).sum(1)).mean().backward()


def crops(modules: Modules, inputs: list[Tensor]) -> None:
    (encoder,) = modules
    results = [encoder(x).log_softmax(1) for x in inputs]
    target = results[0].detach().exp()
    loss = -torch.stack([(target * each).sum(1).mean() for each in results[1:]]).mean()
    del results
    loss.backward()


def rollout(modules: Modules, inputs: list[Tensor]) -> None:
    (policy,) = modules
    torch.stack([policy(x).log_softmax(1)[:, 0].mean() for x in inputs]).sum().backward()


def autoencoder(modules: Modules, inputs: list[Tensor]) -> None:
    encoder, decoder = modules
    F.mse_loss(decoder(encoder(inputs[0])), inputs[0]).backward()


def adversary(modules: Modules, inputs: list[Tensor]) -> None:
    generator, critic = modules
    made = generator(inputs[0])
    (F.softplus(-critic(inputs[1])).mean() + F.softplus(critic(made.detach())).mean()).backward()
    critic.zero_grad(set_to_none=True)
    F.softplus(-critic(made)).mean().backward()


def two_losses(modules: Modules, inputs: list[Tensor]) -> None:
    result = modules[0](inputs[0])
    result.square().mean().backward(retain_graph=True)
    result.logsumexp(1).mean().backward()


STEPS: dict[str, tuple[Step, Callable[[], Modules], Callable[[], list[Tensor]]]] = {
    "siamese": (siamese, lambda: [ResNet((1, 1, 1, 1), 16, 32)], lambda: [images(8, 64), images(8, 64)]),
    "crops": (crops, lambda: [ResNet((1, 1, 1, 1), 16, 32)], lambda: [images(8, 64)] * 2 + [images(8, 32)] * 4),
    "rollout": (rollout, lambda: [Layers(16, 4)], lambda: [torch.randn(32, 16) for _ in range(40)]),
    "autoencoder": (autoencoder, lambda: [Layers(32, 8), Layers(8, 32)], lambda: [torch.randn(1024, 32)]),
    "adversary": (
        adversary,
        lambda: [Layers(8, 32), Layers(32, 1)],
        lambda: [torch.randn(1024, 8), torch.randn(1024, 32)],
    ),
    "two_losses": (two_losses, lambda: [ResNet((1, 1, 1, 1), 16, 32)], lambda: [images(16, 64)]),
}


class Measured:
    """One step: its peak in bytes, its CPU time in seconds, and the gradients that it leaves."""

    def __init__(self, step: Step, modules: Modules, inputs: list[Tensor]) -> None:
        for module in modules:
            module.zero_grad(set_to_none=True)
        with tracker.measure_peak() as peak, processor_time() as elapsed:
            step(modules, inputs)
        self.bytes, self.seconds = peak.bytes, elapsed.seconds
        self.gradients = [parameter.grad for module in modules for _, parameter in sorted(module.named_parameters())]


def equal(ours: Measured, theirs: Measured) -> bool:
    return all(
        (a is None) == (b is None) and (a is None or b is None or torch.equal(a, b))
        for a, b in zip(ours.gradients, theirs.gradients, strict=True)
    )


def row(name: str, share: float) -> str:
    """Measures a step under this share of eager PyTorch's peak, and returns a row of the table."""
    torch.manual_seed(0)
    step, make_modules, make_inputs = STEPS[name]
    eager, inputs = make_modules(), make_inputs()
    unplanned = max(Measured(step, copy.deepcopy(eager), inputs).bytes for _ in range(2))
    budget = int(share * unplanned)
    lowered = [
        aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), "budget", memory_budget=f"{budget}B")
        for module in eager
    ]
    steps = [Measured(step, lowered, inputs) for _ in range(6)]
    pairs = [(Measured(step, lowered, inputs), Measured(step, eager, inputs)) for _ in range(7)]
    later = max(each.bytes for each in [*steps[2:], *(ours for ours, _ in pairs)])
    ratio = statistics.median(ours.seconds for ours, _ in pairs) / statistics.median(
        theirs.seconds for _, theirs in pairs
    )
    same = all(equal(ours, theirs) for ours, theirs in pairs)
    shares = " | ".join(f"{each / budget:.3f}" for each in (steps[0].bytes, steps[1].bytes, later))
    return f"| {name} | {unplanned / 2**20:.1f} MiB | {share} | {shares} | {ratio:.2f} | {'yes' if same else 'no'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], help="which steps (default: all)")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.6, 0.4], help="of eager PyTorch's peak")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tracker.install()
    print("| step | eager | budget | first | second | later | time | same gradients |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.steps or STEPS:
        for share in arguments.shares:
            print(row(name, share), flush=True)


if __name__ == "__main__":
    main()
