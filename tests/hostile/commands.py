"""Command lines of ``aten-recompute``, with words changed, exchanged, repeated and left out."""

import functools
import os
import random
import resource
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path

import torch

import aten_recompute
from benchmarks.memory import BUILT

from .mutate import change_bytes
from .nets import net

COMMAND = Path(BUILT).parent / "aten-recompute"
CORPUS = Path(__file__).parent / "corpus" / "commands"
MOST_MEMORY = 512 << 20  # bytes
SECONDS = 20  # of the processor
LONGEST_WAIT = 300  # seconds that pass
STATUSES = range(7)  # docs/command.md
ODD = [
    "",
    "-",
    "--",
    "---",
    "-1",
    "=",
    "--help",
    "--json",
    "--set",
    "--set=plan=/dev/zero",
    "--set=pattern=((((((((",
    "--input",
    "/dev/zero",
    "/dev/null",
    "/",
    "/nonexistent/file",
    "model.pt",
    "plan.json",
    "float32[]",
    "float32[-1]",
    "float32[9223372036854775807,2]",
    "float32[4,16",
    "int64[4]:0",
    "bool[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
    "1e308",
    "1e308TiB",
    "0%",
    "99999999999999999999",
    "x" * 5000,
    "[" * 5000,
    '{"a":' * 500,
    "\x1b[31m",
    "\udcff",
]


@functools.cache
def _lines() -> list[list[str]]:
    texts = [path.read_text() for path in sorted(CORPUS.glob("*.txt"))]
    return [shlex.split(line) for text in texts for line in text.splitlines() if line.strip()]


@functools.cache
def _files() -> dict[str, bytes]:
    """Returns the files that command lines name."""
    with tempfile.TemporaryDirectory() as folder:
        module = torch.jit.script(net("segments").scene.eager())
        module.save(str(Path(folder) / "model.pt"))
        lowered = aten_recompute.lower(module, "budget", memory_budget=0.8, unreachable="leanest", cost_model="flops")
        net("segments").step(lowered)
        aten_recompute.save_plan(lowered, Path(folder) / "plan.json")
        lowered.save(str(Path(folder) / "lowered.pt"))
        torch.save(net("segments").inputs[0], Path(folder) / "inputs.pt")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))


def run_command(words: list[str], folder: str) -> tuple[bool, str]:
    """Runs the command in the folder. Returns whether it succeeded, and what is wrong; "" if nothing is."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RECOMPUTE")}
    process = subprocess.Popen(
        [os.fsencode(COMMAND), *(os.fsencode(word) for word in words)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_limit,
    )
    try:
        _, said = process.communicate(timeout=LONGEST_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False, f"aten-recompute {words!r:.500} waits for more than {LONGEST_WAIT} s"
    status = process.returncode
    what = f"aten-recompute {words!r:.500} ends with {status}: {said.decode(errors='replace')[:500]}"
    if status == -signal.SIGXCPU:
        return False, f"aten-recompute {words!r:.500} takes more than {SECONDS} s"
    if status not in STATUSES:
        return False, what
    if status != 0 and said.count(b"\n") != 1 and b"warning" not in said.lower():
        return False, f"not one line: {what}"
    taken = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10  # of the largest so far
    if taken > MOST_MEMORY:
        return False, f"aten-recompute {words!r:.500} takes {taken >> 20} MiB"
    return status == 0, ""


def _change_word(word: str, draw: random.Random) -> str:
    changed = os.fsdecode(change_bytes(os.fsencode(word), draw).replace(b"\0", b"0"))
    return changed[:10000]


def draw(draw: random.Random) -> list[str]:
    words = list(draw.choice(_lines()))
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(words) + 1)
        kind = draw.randrange(5)
        if kind == 0:
            words.insert(place, draw.choice(ODD))
        elif kind == 1 and place < len(words):
            words[place] = draw.choice(ODD)
        elif kind == 2 and place < len(words):
            words[place] = _change_word(words[place], draw)
        elif kind == 3:
            words[place : place + 1] = []
        else:
            other = draw.choice(_lines())
            words.insert(place, draw.choice(other))
    return [_harmless(word) for word in words]


def _harmless(word: str) -> str:
    """Returns the word without what would write outside of the folder, or ask for more memory than a test may."""
    word = word.replace("..", "._").replace("~", "-")
    if word.startswith("/") and word not in ODD:
        word = word.lstrip("/")
    # The user may ask for a large tensor; that is no attack.
    sizes = [part for part in word.replace("[", ",").replace("]", ",").split(",") if part.isdigit()]
    # Python converts no text of thousands of digits.
    numbers = [int(size.lstrip("0")[:20] or 0) for size in sizes]
    return word if all(number < 100 or number > 2**40 for number in numbers) else "float32[4,16]"


def judge(words: list[str]) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in _files().items():
            (Path(folder) / name).write_bytes(content)
        return run_command(words, folder)
