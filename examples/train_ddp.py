#!/usr/bin/env python3
"""Trains a character GPT on several processes with DistributedDataParallel, in less memory than eager PyTorch.

    torchrun --nproc-per-node 2 examples/train_ddp.py --budget 0.5
    torchrun --nproc-per-node 2 examples/train_ddp.py --budget 0.25 --optimizer sgd --precision bfloat16

Each process first trains in eager mode, then with the lowered module, from the same weights and on the same batches.
Rank 0 prints for each rank whether the losses are equal to the bit, what a step took at its peak, and how long. The
program exits with 1 if a loss differs, a budget is exceeded, or the ranks have different plans.

The budget is a share of what eager takes above the parameters. DDP's buckets and the optimizer's state count on both
sides: what they hold is subtracted from what the plan may use, because a plan knows of nothing but its own step. With
``gradient_as_bucket_view=True`` the buckets are the gradients; ``accumulate=True`` tells the plan that they exist
before the step. All ranks need the same plan, or they would wait for each other: rank 0 makes it, and the others get
it from there.
"""

import argparse
import copy
import gc
import hashlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))
if importlib.util.find_spec("aten_recompute") is None:
    sys.path.insert(0, str(REPOSITORY / "python"))

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported after init_process_group, it would keep the process group alive
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import aten_recompute
from benchmarks.memory import tracker
from benchmarks.networks.gpt import GPT

warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")

VOCABULARY, CONTEXT, BATCH = 128, 128, 16
WARM_UP_STEPS = 5  # compile, watch what the caller's code needs, and let DDP order its buckets

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
}
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16}


@dataclass
class Course:
    """What one training on one rank was like. Bytes are above the parameters."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0


def text() -> Tensor:
    source = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py"))[:60])
    return torch.frombuffer(bytearray(byte for byte in source if byte < VOCABULARY), dtype=torch.uint8)


def batch_of(data: Tensor, step: int, rank: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns tokens and targets of a step. Each rank has its own."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    starts = torch.randint(data.numel() - CONTEXT - 1, (BATCH, 1), generator=generator)
    crops = data[starts + torch.arange(CONTEXT + 1)].long().to(device)
    return crops[:, :-1].contiguous(), crops[:, 1:].contiguous()


class Trainer:
    def __init__(self, module: nn.Module, options: argparse.Namespace, device: torch.device) -> None:
        self.device, self.dtype = device, PRECISIONS[options.precision]
        self.module = module
        self.parallel = DistributedDataParallel(module, gradient_as_bucket_view=True)
        self.optimizer = OPTIMIZERS[options.optimizer](module.parameters())

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, dtype=self.dtype)

    def step(self, batch: tuple[Tensor, Tensor], seed: int) -> float:
        torch.manual_seed(seed)  # of dropout
        self.optimizer.zero_grad(set_to_none=False)
        with self.autocast():
            loss = self.parallel(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def held_bytes(self) -> int:
        """Returns what is held between steps, beside the parameters: buckets, and the optimizer's state."""
        return aten_recompute.held_bytes(self.module, buckets=True, optimizer=self.optimizer)

    def train(self, data: Tensor, steps: int, rank: int) -> Course:
        course = Course()
        for number in range(WARM_UP_STEPS + steps):
            batch = batch_of(data, number, rank, self.device)
            with tracker.measure_peak(self.device) as peak:
                dist.barrier()
                start = time.perf_counter()
                course.losses.append(self.step(batch, 100 * number + rank))
                seconds = time.perf_counter() - start
            if number >= WARM_UP_STEPS:
                course.seconds.append(seconds)
                course.peak_bytes = max(course.peak_bytes, self.held_bytes() + peak.bytes)
        return course


def same_plan_everywhere(module: torch.jit.ScriptModule, options: dict[str, Any], example: Any, rank: int) -> Any:
    """Returns the module, lowered with the plan that rank 0 makes in two steps on a batch of its own."""
    found: list[str | None] = [None]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "plan.json")
        if rank == 0:
            planned = aten_recompute.lower(module, "budget", **options)
            for _ in range(2):
                example(planned)
            aten_recompute.save_plan(planned, path)
            found = [Path(path).read_text(encoding="utf-8")]
        dist.broadcast_object_list(found, src=0)
        assert found[0] is not None
        Path(path).write_text(found[0], encoding="utf-8")
        return aten_recompute.lower(module, plan=path)


def plan_digest(lowered: torch.jit.ScriptModule) -> str:
    """Describes which values the plan recomputes, and when."""
    regions = [r for m in aten_recompute.report(lowered)["methods"] for s in m["specialisations"] for r in s["regions"]]
    plans = [[variant.get("recomputed"), variant.get("saved")] for region in regions for variant in region["variants"]]
    return hashlib.sha256(repr(plans).encode()).hexdigest()[:12]


def compare(options: argparse.Namespace, rank: int, device: torch.device) -> list[str]:
    """Trains in both ways; returns this rank's row of the table and what is wrong, each a line."""
    torch.manual_seed(0)
    data = text()
    network = GPT(options.blocks, options.width, 4, CONTEXT, VOCABULARY).to(device)
    eager = Trainer(copy.deepcopy(network), options, device)
    expected = eager.train(data, options.steps, rank)
    budget = int(options.budget * expected.peak_bytes)
    held = eager.held_bytes()
    autocast = eager.autocast
    del eager

    def example(planned: nn.Module) -> None:
        planned.zero_grad(set_to_none=False)
        with autocast():
            loss = planned(*batch_of(data, 0, 0, device))
        loss.backward()

    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)  # as the buckets are, when training goes on
    own = {"memory_budget": budget - held, "accumulate": True, "release_outputs": True, "cost_model": "flops"}
    # The budgets of the ranks differ by bytes, where their batches have other sizes. The smallest holds for all.
    smallest = torch.tensor([own["memory_budget"]])
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    own["memory_budget"] = int(smallest)
    lowered = same_plan_everywhere(torch.jit.script(network), own, example, rank)
    lowered.zero_grad(set_to_none=True)
    ours = Trainer(lowered, options, device)
    course = ours.train(data, options.steps, rank)

    digests: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, plan_digest(lowered))
    mib = 2**20
    equal = course.losses == expected.losses
    row = (
        f"| {options.optimizer} | {options.precision} | {options.budget} | {rank} | {'equal' if equal else 'DIFFER'} "
        f"| {held / mib:.1f} | {expected.peak_bytes / mib:.1f} | {budget / mib:.1f} | {course.peak_bytes / mib:.1f} "
        f"| {1e3 * statistics.median(expected.seconds):.0f} | {1e3 * statistics.median(course.seconds):.0f} |"
    )
    lines = [row]
    if not equal:
        lines.append(f"rank {rank}: the losses differ")
    if course.peak_bytes > budget:
        lines.append(f"rank {rank}: the budget of {budget} bytes is exceeded: {course.peak_bytes}")
    if len(set(digests)) > 1:
        lines.append(f"rank {rank}: the ranks have different plans")
    return lines


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a GPT with DDP in eager mode and lowered, and compare.")
    parser.add_argument("--budget", type=float, default=0.5, help="share of eager's peak (default: %(default)s)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32", help="bfloat16 is under autocast")
    parser.add_argument("--steps", type=int, default=10, help="measured steps (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    rank = int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if not cuda:
        tracker.install()
    lines: list[list[str] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(lines, compare(options, rank, device))
    if rank == 0:
        print("| optimizer | precision | budget | rank | losses | held, MiB | eager, MiB | budget, MiB | ours, MiB "
              "| eager, ms | ours, ms |")  # fmt: skip
        for each in lines:
            print("\n".join(each or []))
    gc.collect()  # modules hold the process group, whose threads have to end before Python does
    dist.destroy_process_group()
    return int(any(len(each or []) > 1 for each in lines))


if __name__ == "__main__":
    sys.exit(main())
