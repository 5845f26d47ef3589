"""Hostile inputs are refused, or do no harm: some seconds of each kind. ``make hostile`` runs longer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import READER, TEXTS
from .kinds import KINDS

TESTS = Path(__file__).resolve().parents[1]
SECONDS = os.environ.get("HOSTILE_SECONDS", "1.5")
SEED = os.environ.get("HOSTILE_SEED", "3")


@pytest.mark.parametrize("kind", [*TEXTS, *KINDS])
def test_hostile_input_does_no_harm(kind: str, tmp_path: Path) -> None:
    if kind in TEXTS and not READER.exists():
        pytest.skip("the program that reads hostile texts is not built")
    paths = [TESTS.parent / "python", TESTS, TESTS / "python", TESTS.parent]
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}
    command = [sys.executable, "-m", "hostile", kind, "--seconds", SECONDS, "--seed", SEED]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    said = done.stdout.split()
    accepted, count = int(said[said.index("accepted,") - 1]), int(said[said.index("inputs") - 1])
    assert count > 0, done.stdout
    # Of thousands, something is refused, and something is accepted: else nothing would be tried.
    assert 0 < accepted < count or kind not in TEXTS, done.stdout
