"""Tries the points at which requests of a step can fail, each in a process of its own.

The process is a fork of one that has made the steps before, so that a point costs no more than the steps that follow,
and a crash or an endless wait is found at the point that causes it.
"""

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .memory import TENSORS, Memory
from .scenes import Scene, State, eager_results, lowered, restore, state_of

# Steps that have been made when the one begins in which requests fail: none, so that it plans; one, so that its memory
# is recorded or placed for the first time; several, so that everything has settled.
PHASES = {"first": 0, "second": 1, "later": 4}

LONGEST_SECONDS = 600  # of one point, on a machine that may be busy
OUT_OF_MEMORY = ("can't allocate memory", "bad_alloc", "out of memory", "MemoryError")


@dataclass
class Trial:
    """What happened at one point."""

    problem: str = ""  # "" where all is well
    raised: bool = False
    requests: int = 0
    message: str = ""
    live_bytes: list[int] = field(default_factory=list)  # before, after the failed step, after the next good one


def in_fork(work: Callable[[], Trial]) -> Trial:
    """Runs `work` in a fork of this process, and returns what it returned, or how the process ended."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            # PyTorch makes its autograd engine anew at the first use after a fork: two threads may not do so at once.
            torch.ones((), requires_grad=True).exp().backward()
            trial = work()
            os.write(write, json.dumps(trial.__dict__).encode())
            status = 0
        except BaseException as error:  # the parent has to hear of it, whatever it is
            problem = f"{type(error).__name__}: {error}"
            os.write(write, json.dumps({"problem": problem[:2000]}).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    text = b""
    deadline = time.monotonic() + LONGEST_SECONDS
    hangs = False
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            hangs = True
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(read, 65536)
        if not part:
            break
        text += part
    os.close(read)
    _, status = os.waitpid(child, 0)
    if hangs:
        return Trial(problem=f"no answer after {LONGEST_SECONDS} s")
    if os.WIFSIGNALED(status):
        return Trial(problem=f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    return Trial(**json.loads(text)) if text else Trial(problem=f"ended with status {status}")


def same_bits(results: list[Tensor], wanted: list[Tensor]) -> bool:
    return len(results) == len(wanted) and all(
        a.dtype == b.dtype and torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b)
        for a, b in zip(results, wanted, strict=True)
    )


class Points:
    """The points of one scene in one phase, for one kind of requests."""

    def __init__(self, scene: Scene, phase: str, memory: Memory) -> None:
        self.scene = scene
        self.memory = memory
        self.wanted = eager_results(scene)
        self.inputs = scene.inputs()
        self.state: State = state_of(scene.eager())
        self.module = lowered(scene)
        for _ in range(PHASES[phase]):
            restore(self.module, self.state)
            if not same_bits(scene.run(self.module, self.inputs), self.wanted):
                raise AssertionError("a step is wrong before anything has failed")
        self._settle()
        gc.freeze()  # forks look for garbage many times, and only among what they make
        self.unharmed = in_fork(lambda: self._try(0, False))
        if self.unharmed.problem:
            raise AssertionError(f"without a failure: {self.unharmed.problem}")

    @property
    def count(self) -> int:
        """How many requests a step makes that does not fail."""
        return self.unharmed.requests

    def try_point(self, n: int, and_later: bool = False) -> Trial:
        """Lets the `n`-th request fail, and judges the step, its memory and the steps after it."""
        trial = in_fork(lambda: self._try(n, and_later))
        if trial.problem or not trial.live_bytes:
            return trial
        before, failed, good = trial.live_bytes
        kept = self.unharmed.live_bytes[2] - self.unharmed.live_bytes[0]  # by what a first step compiles
        if good - before != kept:
            trial.problem = f"{good - before - kept} bytes of tensors leak"
        # Eager PyTorch, too, keeps some tensors of second derivatives until the next step.
        elif self.scene.has_bits_of_eager and failed - before > max(0, kept):
            trial.problem = f"{failed - before - max(0, kept)} bytes of tensors stay after the error"
        return trial

    def _settle(self) -> None:
        self.module.zero_grad(set_to_none=True)
        gc.collect()

    def _good_step(self) -> bool:
        restore(self.module, self.state)
        results = self.scene.run(self.module, self.inputs)
        is_same = same_bits(results, self.wanted)
        del results
        self._settle()
        return is_same

    def _try(self, n: int, and_later: bool) -> Trial:
        trial = Trial()
        restore(self.module, self.state)
        self._settle()
        before = self.memory.live_bytes
        self._fail_once(n, and_later, trial)
        failed = self.memory.live_bytes
        for step in range(3):
            if not self._good_step():
                trial.problem = trial.problem or f"step {step + 1} after the failure is wrong"
        trial.live_bytes = [before, failed, self.memory.live_bytes]
        return trial

    def _fail_once(self, n: int, and_later: bool, trial: Trial) -> None:
        results: list[Tensor] = []
        self.memory.fail(n, and_later)
        try:
            results = self.scene.run(self.module, self.inputs)
            trial.requests = self.memory.stop()
        except (RuntimeError, MemoryError) as error:
            trial.requests = self.memory.stop()
            trial.raised = True
            trial.message = f"{type(error).__name__}: {error}"
            if not any(text in trial.message for text in OUT_OF_MEMORY):
                trial.problem = f"an error that does not speak of memory: {trial.message[:500]}"
        if not trial.raised and not same_bits(results, self.wanted):
            trial.problem = "the step with the failure returns wrong results"
        del results
        self._settle()


def leaked_blocks(points: Points, n: int, times: int = 4) -> Trial:
    """Fails at the same point again and again: what the library allocates for itself must not grow.

    `Trial.requests` is the growth from the last but one to the last time, in blocks.
    """
    memory = points.memory
    assert memory.kind != TENSORS

    def work() -> Trial:
        memory.count_blocks()
        live = []
        for _ in range(times):
            trial = points._try(n, False)
            if trial.problem:
                return trial
            live.append(memory.live_blocks)
        growth = live[-1] - live[-2]
        if growth > 0 and live[-2] > live[-3]:
            trial.problem = f"{growth} blocks leak each time: {live}"
        trial.requests = growth
        return trial

    return in_fork(work)


def spread(count: int, most: int) -> Iterable[int]:
    """Returns at most `most` of the numbers 1 to `count`: the first and last ones, and others evenly between them."""
    if count <= most:
        return range(1, count + 1)
    return sorted({1 + round(i * (count - 1) / max(1, most - 1)) for i in range(most)})


def summary(trials: dict[int, Trial]) -> dict[str, Any]:
    return {
        "points": len(trials),
        "raised": sum(trial.raised for trial in trials.values()),
        "problems": {n: trial.problem for n, trial in trials.items() if trial.problem},
    }
