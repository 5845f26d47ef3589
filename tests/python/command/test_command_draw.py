"""``aten-recompute draw`` writes a picture, or nothing."""

import os
from pathlib import Path

import pytest

from support.command_runs import INPUT, Command


def test_what_a_budget_recomputes_is_drawn(command: Command, model: str, tmp_path: Path) -> None:
    texts = []
    for name, arguments in (("all.dot", []), ("half.dot", ["--budget", "0.5"])):
        result = command("draw", model, name, "--input", INPUT, "--layer", "net.blocks.0", *arguments)
        assert (result.status, result.error, result.out) == (0, "", f"{name}: written\n")
        texts.append((tmp_path / name).read_text())
    assert all(text.startswith("digraph") for text in texts)
    assert texts[0] != texts[1]


def test_a_timeline_is_drawn(command: Command, model: str, tmp_path: Path) -> None:
    result = command("draw", model, "memory.dot", "--input", INPUT, "--what", "timeline", "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["what"] == "timeline"
    assert (tmp_path / "memory.dot").stat().st_size > 0


@pytest.mark.parametrize(
    ("status", "output", "arguments", "part"),
    [
        (2, "out.jpg", [], ".jpg"),
        (2, "out.dot", ["--what", "sunset"], "--what"),
        (2, "out.dot", ["--layer", "nowhere"], "nowhere"),
        (4, "missing/out.dot", [], "missing/out.dot"),
        (5, "out.dot", ["--budget", "1KiB"], "the smallest that can be reached is"),
    ],
)
def test_what_is_wrong_leaves_no_file(
    command: Command, model: str, tmp_path: Path, status: int, output: str, arguments: list[str], part: str
) -> None:
    command("draw", model, output, "--input", INPUT, *arguments).fails(status, part)
    assert os.listdir(tmp_path) == []
