"""A step in which a request for memory fails raises an error, leaks nothing, and leaves the module as it was.

Some points of each step are tried here. ``python -m failing_memory`` tries all of them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .memory import KINDS, MAPS, NEW, PRELOAD, TENSORS

TESTS = Path(__file__).resolve().parents[1]
POINTS = int(os.environ.get("FAILING_MEMORY_POINTS", "3"))  # of each step


def run(*arguments: str) -> str:
    paths = [TESTS.parent / "python", TESTS, TESTS / "python", TESTS.parent]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    command = [sys.executable, "-m", "failing_memory", *arguments]
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_request_is_an_error_without_leak_or_wrong_gradients(kind: str) -> None:
    if kind != TENSORS and not PRELOAD.exists():
        pytest.skip("the library that lets operator new fail is not built")
    said = run("--kind", kind, "--points", str(POINTS))
    raised = sum(int(count) for count in re.findall(r"(\d+) raised an error", said))
    # Where the system gives no arena, the step does without; tensors and the library's own structures it needs.
    assert (raised > 0) == (kind != MAPS), said


def test_all_memory_gone_from_a_point_on_is_an_error_too() -> None:
    run("gpt", "regions", "--kind", TENSORS, "--points", str(POINTS), "--and-later")


def test_what_the_library_allocates_for_itself_does_not_grow_with_failures() -> None:
    if not PRELOAD.exists():
        pytest.skip("the library that lets operator new fail is not built")
    run("gpt", "regions", "--kind", NEW, "--phase", "later", "--points", str(POINTS), "--leaks")
