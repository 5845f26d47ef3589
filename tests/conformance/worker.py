"""Runs entries in another process, so that a crash is a line of the table and not the end of the run."""

import multiprocessing
import queue
import threading
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import torch

from .cases import DTYPES, entries
from .compare import Mode, Outcome, outcomes_of

CRASHED = "crashed"

Outcomes = list[tuple[str, Outcome]]


def _serve(pipe: Connection, limit: int | None, dtypes: tuple[torch.dtype, ...], mode: Mode) -> None:
    torch.set_num_threads(1)  # with several threads, sums have another order and therefore another result
    by_name = {entry.name: entry for entry in entries(dtypes, mode.numerical, mode.device)}
    while True:
        name = pipe.recv()
        if name is None:
            return
        try:
            pipe.send(list(outcomes_of(by_name[name], limit, mode)))
        except Exception:
            pipe.send([("", Outcome(CRASHED, detail=traceback.format_exc()))])


class Worker:
    """A process that runs entries one by one, and that is started again after a crash."""

    def __init__(
        self,
        limit: int | None = None,
        seconds: float = 600,
        dtypes: tuple[torch.dtype, ...] = DTYPES,
        mode: Mode | None = None,
    ):
        self._seconds, self._arguments = seconds, (limit, dtypes, mode or Mode())
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, name: str) -> Outcomes:
        """Returns the description and the outcome of each sample of the entry."""
        try:
            self._pipe.send(name)
            if self._pipe.poll(self._seconds):
                return self._pipe.recv()
            detail = f"not done after {self._seconds:.0f} s"
        except (EOFError, OSError):
            self._process.join()
            detail = f"exit code {self._process.exitcode}"
        self._process.kill()
        self._process.join()
        self._start()
        return [("", Outcome(CRASHED, detail=detail))]

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join(10)
        self._process.kill()


def run_all(
    names: Sequence[str], jobs: int, limit: int | None, dtypes: tuple[torch.dtype, ...], mode: Mode
) -> Iterator[tuple[str, Outcomes]]:
    """Yields the name of each entry and what its samples gave, as they end; ``jobs`` processes share the entries."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, Outcomes]] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)

    def serve() -> None:
        worker = Worker(limit, dtypes=dtypes, mode=mode)
        try:
            while True:
                name = waiting.get_nowait()
                done.put((name, worker.run(name)))
        except queue.Empty:
            worker.close()

    for _ in range(min(jobs, len(names))):
        threading.Thread(target=serve, daemon=True).start()
    for _ in names:
        yield done.get()
