"""Measures the time of steps, and decides whether such times are worth comparing."""

import contextlib
import dataclasses
import gc
import statistics
import time
from collections.abc import Iterator, Sequence

# Medians of an undisturbed run lie within about a fifth above the fastest step.
LIMIT = 1.5


def disturbed(seconds: Sequence[float]) -> bool:
    """Whether other work on the machine has changed even the median of these step times, which are in seconds.

    A step that lacks a core can take ten times as long, because PyTorch's threads wait for each other at every
    operator. A burst of other work may affect a single configuration only, although configurations take turns. The
    median is not affected as long as fewer than half of the steps are. Beyond that, a ratio of medians means nothing
    and should not be quoted. The result is False for fewer than two steps.
    """
    return len(seconds) > 1 and statistics.median(seconds) > LIMIT * min(seconds)


@dataclasses.dataclass
class Elapsed:
    """Seconds of the CPU, of all threads of the process."""

    seconds: float = 0.0


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Keeps Python from collecting garbage.

    A collection takes as long as many small operators, and begins once so many objects were made, which in some
    processes is in the measured step of one method and never in that of another.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def processor_time() -> Iterator[Elapsed]:
    """Yields an `Elapsed` that is set when the block ends. Python collects no garbage in it."""
    elapsed = Elapsed()
    with no_collections():
        begin = time.process_time()
        try:
            yield elapsed
        finally:
            elapsed.seconds = time.process_time() - begin
