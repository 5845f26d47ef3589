#!/usr/bin/env python3
"""Trains a GPT of 12 blocks of width 768 where the process may take only so much more memory.

    python benchmarks/hard_limit.py                      # 600 MiB above parameters and gradients
    python benchmarks/hard_limit.py --limit 1000

Each way to train runs in a process of its own. When the network and its gradients are there, the process limits its
address space to what it has and the limit more, as ``ulimit -v`` does, and makes three steps on 2 texts of 512 tokens.
Eager PyTorch needs some 1,900 MiB for them, and ``torch.utils.checkpoint`` around each block some 800
(``benchmarks/step_memory.py``). This library has the limit less 200 MiB as its budget, which is for its search and for
what the C library keeps; its first step, which measures operators and searches for a plan, runs under the limit, too.
"""

import argparse
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "python")]

import torch
from tqdm import tqdm

import aten_recompute
from benchmarks.arguments import positive
from benchmarks.networks.gpt import GPT
from benchmarks.peers import checkpoint_blocks
from benchmarks.resident import status

EAGER, CHECKPOINT, OURS = "eager PyTorch", "torch.utils.checkpoint", "aten_recompute"
MIB = 1 << 20
FOR_THE_REST = 200 * MIB  # of the limit, for what is not the step's
STEPS = 3


def prepare(how: str, model: Any, budget: int) -> Any:
    if how == CHECKPOINT:
        return checkpoint_blocks(model)
    if how == OURS:
        scripted = torch.jit.script(model)
        return aten_recompute.lower(scripted, "budget", memory_budget=budget, accumulate=True)
    return model


def train(how: str, limit: int, blocks: int, context: int) -> None:
    """What the process of one way does."""
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    torch.manual_seed(0)
    # Threads, and what libraries set up when they are first used, are there before the limit is.
    small = torch.randint(100, (2, 16))
    prepare(how, GPT(blocks=1, width=64, heads=2, context=16, vocabulary=100), 1 << 30)(small, small).backward()
    model = GPT(blocks=blocks, width=768, heads=12, context=context, vocabulary=1000)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    text = torch.randint(1000, (2, context + 1))
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    module = prepare(how, model, limit - FOR_THE_REST)
    most = status("VmSize") + limit
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        loss = module(tokens, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("trains: losses " + ", ".join(f"{loss:.3f}" for loss in losses))


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=positive, default=600, help="MiB above what is there (default 600)")
    parser.add_argument("--blocks", type=positive, default=12, help="blocks of the network (default 12)")
    parser.add_argument("--context", type=positive, default=512, help="tokens of a text (default 512)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        train(options.one, options.limit * MIB, options.blocks, options.context)
        return 0
    common = [sys.executable, __file__, "--limit", str(options.limit)]
    common += ["--blocks", str(options.blocks), "--context", str(options.context)]
    lines = []
    for how in tqdm((EAGER, CHECKPOINT, OURS), unit="process", disable=None):
        done = subprocess.run([*common, "--one", how], capture_output=True, text=True, check=False)
        said = last_line(done.stdout) if done.returncode == 0 else "dies: " + last_line(done.stderr)
        lines.append(f"{how:<24} {said}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
