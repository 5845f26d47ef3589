"""Judges inputs in a fork of this process, so that a crash, an endless wait or much memory is found at its input."""

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_MEMORY = 512 << 20  # bytes that a fork may take in addition to what the process had
GUARD = 6 << 30  # bytes of address space in addition: the machine must survive what is found
SECONDS_EACH = 20  # of the processor; the machine may be busy with other things
LONGEST_WAIT = 300  # seconds that pass


@dataclass
class Finding:
    """What is wrong, and with which of the inputs."""

    index: int
    text: str


def _status_bytes(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


def _judge_all(inputs: Sequence[Any], judge: Callable[[Any], tuple[bool, str]], write: int) -> None:
    """Writes a line of JSON before each input, and one after it."""
    limit = _status_bytes("VmSize") + GUARD
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for index, each in enumerate(inputs):
        os.write(write, json.dumps({"begins": index}).encode() + b"\n")
        with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
            peak.write("5")  # the peak begins anew
        before = _status_bytes("VmRSS")
        signal.setitimer(signal.ITIMER_PROF, SECONDS_EACH)
        signal.alarm(LONGEST_WAIT)
        accepted, problem = judge(each)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        taken = _status_bytes("VmHWM") - before
        if not problem and taken > MOST_MEMORY:
            problem = f"takes {taken >> 20} MiB"
        os.write(write, json.dumps({"ends": index, "accepted": accepted, "problem": problem[:2000]}).encode() + b"\n")
        if problem:
            return


def judge_in_fork(inputs: Sequence[Any], judge: Callable[[Any], tuple[bool, str]]) -> tuple[int, int, Finding | None]:
    """Returns how many inputs were judged, how many were accepted, and the first finding.

    ``judge`` returns whether an input was accepted, and what is wrong; "" where nothing is.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            _judge_all(inputs, judge, write)
        except BaseException as error:
            line = {"ends": -1, "accepted": False, "problem": f"{type(error).__name__}: {error}"[:2000]}
            os.write(write, json.dumps(line).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(write)
    text = b""
    deadline = time.monotonic() + LONGEST_WAIT * (len(inputs) + 1)
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(read, 65536) if ready else b""
        if not part:
            break
        text += part
    os.close(read)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    lines = [json.loads(line) for line in text.splitlines()]
    ended = [line for line in lines if "ends" in line]
    accepted = sum(line["accepted"] for line in ended)
    begun = max((line["begins"] for line in lines if "begins" in line), default=0)
    problem = next((line["problem"] for line in ended if line["problem"]), "")
    if problem:
        return len(ended), accepted, Finding(begun, problem)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        takes_long = {"SIGPROF": SECONDS_EACH, "SIGALRM": LONGEST_WAIT}
        what = f"takes more than {takes_long[name]} s" if name in takes_long else f"ends the process with {name}"
        return len(ended), accepted, Finding(begun, what)
    return len(ended), accepted, None
