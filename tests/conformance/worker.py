"""Runs entries in another process, so that a crash is a line of the table and not the end of the run."""

import multiprocessing
import traceback
from multiprocessing.connection import Connection

import torch

from .cases import DTYPES, entries
from .compare import Mode, Outcome, outcomes_of

CRASHED = "crashed"

Outcomes = list[tuple[str, Outcome]]


def _serve(pipe: Connection, limit: int | None, dtypes: tuple[torch.dtype, ...], mode: Mode) -> None:
    torch.set_num_threads(1)  # with several threads, sums have another order and therefore another result
    by_name = {entry.name: entry for entry in entries(dtypes, mode.numerical)}
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
