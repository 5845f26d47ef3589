"""``aten-recompute profile`` tells what Python's ``profile`` does."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import aten_recompute
from support.command_runs import INPUT, WIDTH, Command, Large


def test_layers_are_those_of_python(command: Command, model: str) -> None:
    result = command("profile", model, "--input", INPUT, "--meta", "--depth", "3", "--json")
    assert (result.status, result.error) == (0, "")
    expected = aten_recompute.profile(torch.jit.load(model), (torch.zeros(1024, WIDTH),), meta=True).modules(depth=3)
    assert len(expected) > 3
    keys = ("bytes", "kept_bytes", "forward_flops", "backward_flops")
    assert [
        (each["name"], each["forward_operators"], *(each[key] for key in keys)) for each in result.json["layers"]
    ] == [(each.module, each.nodes, *(getattr(each, key) for key in keys)) for each in expected]


def test_operators_of_a_name_are_added_up(command: Command, model: str) -> None:
    result = command("profile", model, "--input", INPUT, "--by", "operator", "--json")
    assert (result.status, result.error) == (0, "")
    first, *others = result.json["operators"]
    assert first["name"] == ""
    assert len({each["name"] for each in others}) == len(others) > 2
    for key in ("forward_operators", "backward_operators", "bytes", "forward_flops", "forward_seconds"):
        assert first[key] == pytest.approx(sum(each[key] for each in others))
    assert first["forward_seconds"] > 0
    linear = next(each for each in others if each["name"] == "aten_recompute::linear")
    count = sum(
        isinstance(each, nn.Linear) or "Linear" in each.original_name for each in torch.jit.load(model).modules()
    )
    assert linear["forward_operators"] == count


def test_single_operators_are_limited_to_the_most_expensive(command: Command, model: str) -> None:
    result = command("profile", model, "--input", INPUT, "--by", "single", "--meta", "--limit", "3")
    assert (result.status, result.error) == (0, "")
    header, *rows = result.out.splitlines()
    assert "time" not in header
    assert len(rows) == 3
    nodes = command("profile", model, "--input", INPUT, "--by", "single", "--meta", "--json").json["nodes"]
    most = sorted((node["flops"] for node in nodes), reverse=True)[:3]
    texts = command("profile", model, "--input", INPUT, "--by", "single", "--meta").out.splitlines()[1:]
    assert len(texts) == len(nodes)
    places = {" ".join(text.split()): i for i, text in enumerate(texts)}
    shown = [nodes[places[" ".join(row.split())]]["flops"] for row in rows]
    assert sorted(shown, reverse=True) == most


def test_times_are_shown_unless_nothing_runs(command: Command, model: str) -> None:
    timed = command("profile", model, "--input", INPUT).out
    header, first = timed.splitlines()[:2]
    assert re.split("  +", header) == [
        *("layer", "operators", "results", "kept", "forward", "backward", "forward time", "backward time", "of all")
    ]
    assert first.startswith("(all) ")
    assert first.endswith("100 %")
    assert " ms" in first or " us" in first


def most_resident(binary: Path, folder: Path, *arguments: str) -> int:
    """Runs the command in a process of its own and returns the most kibibytes that it had in memory."""
    process = subprocess.Popen([binary, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    return int(usage.ru_maxrss)


def test_meta_allocates_nothing_of_the_size_of_the_model(binary: Path, model: str, tmp_path: Path) -> None:
    """The parameters take 256 MiB and the results of the forward 16 GiB."""
    torch.jit.script(Large()).save(str(tmp_path / "large.pt"))
    small = most_resident(binary, tmp_path, "profile", model, "--input", INPUT, "--meta")
    large = most_resident(binary, tmp_path, "profile", "large.pt", "--input", "float32[131072,2048]", "--meta")
    assert large - small < 64 << 10


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, ["--by", "color", "--input", INPUT], "--by"),
        (2, ["--limit", "0", "--input", INPUT], "--limit"),
        (2, ["--device", "cuda", "--input", INPUT], "--device cuda: needs --meta"),
        (2, ["--method", "walk", "--input", INPUT], 'no method "walk"'),
        (2, ["--set", "colour=red", "--input", INPUT], 'key "colour" is unknown'),
        (2, [], "--input is required"),
        (6, ["--input", "float32[8,63]", "--meta"], "mat1 and mat2 shapes cannot be multiplied"),
        (6, ["--input", "float32[8,63]"], "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_what_is_wrong_is_one_line(command: Command, model: str, status: int, arguments: list[str], part: str) -> None:
    command("profile", model, *arguments).fails(status, part)
