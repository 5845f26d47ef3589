"""Profiles of more than a second show a bar where standard error is a terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import time, warnings
import torch
from torch import Tensor, nn
import aten_recompute

warnings.filterwarnings("ignore")
torch.library.define("slow::twice", "(Tensor x) -> Tensor")

@torch.library.impl("slow::twice", "cpu")
def twice(x):
    time.sleep(0.6)
    return x * 2

def backward(grad):
    return grad * 2

aten_recompute.register_rule("slow::twice", backward=backward)

class Slow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.slow.twice(torch.ops.slow.twice(x)[:32]).cos().sum()

lowered = aten_recompute.lower(torch.jit.script(Slow()), "none", profile=True)
lowered(torch.rand(64, requires_grad=True)).backward()
print("done")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "slow_program.py"
    path.write_text(PROGRAM)
    return path


def environment(**others: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), **others}


def on_a_terminal(program: Path, **others: str) -> str:
    """Returns what a program writes to a terminal that is its standard error."""
    reader, terminal = pty.openpty()
    with os.fdopen(reader, "rb", buffering=0) as output:
        started = subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.DEVNULL, stderr=terminal, env=environment(**others)
        )
        os.close(terminal)
        written = b""
        while True:
            try:
                part = output.read(4096)
            except OSError:  # the end of a terminal
                break
            if not part:
                break
            written += part
        assert started.wait() == 0, written
    return written.decode()


def test_a_long_profile_shows_what_it_measures_and_leaves_nothing(program: Path) -> None:
    written = on_a_terminal(program)
    assert "\raten_recompute: profile [" in written
    assert "  slow::twice" in written
    assert written.rpartition("\r")[2] == "\x1b[K"


def test_nothing_is_shown_where_it_is_switched_off(program: Path) -> None:
    assert on_a_terminal(program, RECOMPUTE_PROGRESS="0") == ""


def test_nothing_is_shown_without_a_terminal(program: Path) -> None:
    done = subprocess.run([sys.executable, str(program)], env=environment(), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
