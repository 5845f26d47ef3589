"""The scripts behind what the README says of the memory of a GPT, on a network of one block."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(REPOSITORY / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_memory_of_a_step_is_printed_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "step.svg"
    small = ["--blocks", "1", "--context", "128", "--rounds", "1", "--warm-up", "4"]
    lines = run("benchmarks/step_memory.py", *small, "--budgets", "0.9", "--svg", str(picture)).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [
        *("eager PyTorch", "torch.utils.checkpoint", "aten_recompute, budget 0.9")
    ]
    peaks = [int(line[28:].split()[0]) for line in lines[1:]]
    assert 0 < peaks[2] < peaks[0]
    assert picture.read_text().startswith("<?xml")


def test_a_step_under_a_hard_limit_trains_or_says_what_is_missing() -> None:
    trains = run("benchmarks/hard_limit.py", "--blocks", "1", "--context", "128", "--limit", "900")
    assert [line[:24].strip() for line in trains.splitlines()] == [
        *("eager PyTorch", "torch.utils.checkpoint", "aten_recompute")
    ]
    # Dropouts draw the same numbers in each way to train.
    assert len({line[24:].strip() for line in trains.splitlines()}) == 1, trains
    assert trains.count("trains: losses") == 3
    command = [sys.executable, str(REPOSITORY / "benchmarks/hard_limit.py"), "--blocks", "1"]
    command += ["--context", "128", "--limit", "210"]
    done = subprocess.run([*command, "--one", "aten_recompute"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the smallest that can be reached is" in done.stderr


def test_a_soak_of_some_steps_finds_no_wrong_gradient() -> None:
    lines = run("tools/soak.py", "--steps", "200", "--seed", "3").splitlines()
    assert len(lines) == 10
    assert all("MiB resident" in line for line in lines)


@pytest.mark.skipif(
    not (REPOSITORY / "build" / "libaten_recompute.so").is_file(), reason="the benchmark compares folders build/"
)
def test_two_builds_train_in_turn() -> None:
    small = ["--models", "mlp", "--size", "small", "--repeats", "2", "--budgets", "0.5,0.01"]
    rows = [line.strip("| ").split(" | ") for line in run("benchmarks/builds.py", str(REPOSITORY), *small).splitlines()]
    by_plan = {row[1]: row for row in rows[2:]}
    assert list(by_plan) == ["0.01", "eager", "none", "0.5"]
    assert "the smallest that can be reached" in by_plan["0.01"][2]
    assert [row[6] for name, row in by_plan.items() if name != "0.01"] == ["equal"] * 3
    # Both are the same build.
    assert by_plan["none"][5] == "1.000"
