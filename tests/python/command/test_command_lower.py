"""``aten-recompute lower`` writes what ``lower`` and ``save`` write, or nothing."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.command_runs import INPUT, WIDTH, Command
from support.helpers import assert_same, step


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--budget", "0.6"], {"strategy": "budget", "memory_budget": 0.6}),
        (["--strategy", "budget", "--budget", "4MiB"], {"strategy": "budget", "memory_budget": 4 << 20}),
        (["--strategy", "layers", "--set", "stride=2"], {"strategy": "layers", "start": 0, "stride": 2}),
        (["--strategy", "ops", "--set", 'ops=["gelu"]'], {"strategy": "ops", "ops": ["gelu"]}),
    ],
)
def test_the_file_is_lowered_with_the_options(
    command: Command, model: str, tmp_path: Path, arguments: list[str], options: dict[str, object]
) -> None:
    result = command("lower", model, "out.pt", *arguments)
    assert (result.status, result.error, result.out) == (0, "", "out.pt: written\n")
    lowered = aten_recompute.load(str(tmp_path / "out.pt"))
    assert aten_recompute.report(lowered)["methods"][0]["options"].items() >= options.items()
    eager, x = torch.jit.load(model), torch.randn(1024, WIDTH)
    for ours, theirs in zip(*(step(each, list(each.parameters()), (x,)) for each in (lowered, eager)), strict=True):
        assert_same(ours, theirs)
    assert os.listdir(tmp_path) == ["out.pt"]


def test_other_methods_are_lowered_by_name(command: Command, model: str, tmp_path: Path) -> None:
    command("lower", model, "out.pt", "--strategy", "all", "--method", "walk").fails(2, 'no method "walk"')
    assert os.listdir(tmp_path) == []


def test_json_names_what_was_written(command: Command, model: str) -> None:
    result = command("lower", model, "out.pt", "--budget", "40%", "--json")
    assert result.json == {
        "file": "out.pt",
        "methods": ["forward"],
        "options": {"strategy": "budget", "memory_budget": "40%"},
    }


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, [], "--strategy or --budget is required"),
        (2, ["--strategy", "magic"], '"magic"'),
        (2, ["--strategy", "all", "--budget", "0.5"], "--budget does not belong to strategy all"),
        (2, ["--strategy", "all", "--set", "stride=2"], '"stride"'),
        (2, ["--budget", "1.5.2"], '--budget: got "1.5.2"'),
        (2, ["--budget", "1B"], "at least 2 B"),
        (2, ["--strategy", "plan"], "--set plan=FILE"),
        (3, ["--strategy", "plan", "--set", "plan=nothing.json"], "nothing.json: cannot be opened"),
        (2, ["--strategy", "layers", "--layers", "nothing.*"], "nothing.*"),
        (5, ["--budget", "1KiB", "--input", INPUT], "budget 1KiB: no plan keeps the peak under 1.0 KiB"),
    ],
)
def test_what_is_wrong_leaves_the_file_as_it_was(
    command: Command, model: str, tmp_path: Path, status: int, arguments: list[str], part: str
) -> None:
    (tmp_path / "out.pt").write_text("before")
    command("lower", model, "out.pt", *arguments).fails(status, part)
    assert (tmp_path / "out.pt").read_text() == "before"
    assert os.listdir(tmp_path) == ["out.pt"]


@pytest.mark.parametrize(
    ("output", "part"),
    [
        ("missing/out.pt", "missing/out.pt: cannot be written: No such file or directory"),
        ("folder", "folder: cannot be written: Is a directory"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_a_file_that_cannot_be_written_ends_with_status_4(
    command: Command, model: str, tmp_path: Path, output: str, part: str
) -> None:
    (tmp_path / "folder").mkdir()
    command("lower", model, output, "--budget", "0.5").fails(4, part)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk_leaves_nothing(limited: Command, model: str, tmp_path: Path) -> None:
    limited("lower", model, "out.pt", "--budget", "0.5").fails(4, "out.pt: cannot be written: File too large")
    assert os.listdir(tmp_path) == []


def test_a_file_may_take_the_place_of_its_input(command: Command, model: str, tmp_path: Path) -> None:
    (tmp_path / "in.pt").write_bytes(Path(model).read_bytes())
    assert command("lower", "in.pt", "in.pt", "--budget", "0.5").status == 0
    assert command("inspect", "in.pt", "--json").json["methods"][0]["lowered"]["strategy"] == "budget"


def test_a_plan_file_is_followed(command: Command, model: str, tmp_path: Path) -> None:
    lowered = aten_recompute.lower(torch.jit.load(model), "budget", memory_budget=0.6, cost_model="flops")
    for _ in range(2):
        lowered(torch.randn(1024, WIDTH)).backward()
    aten_recompute.save_plan(lowered, str(tmp_path / "plan.json"))
    for subcommand in (["lower", model, "out.pt"], ["draw", model, "out.dot", "--input", INPUT]):
        result = command(*subcommand, "--strategy", "plan", "--set", "plan=plan.json")
        assert (result.status, result.error) == (0, "")
    result = command("diff", "plan.json", "out.pt", "--json")
    assert result.json["differ"] is False
    command(
        "draw", model, "plan.json", "--input", INPUT, "--what", "perfetto", "-s", "plan", "--set", "plan=plan.json"
    ).fails(2, "would replace")


class Large(nn.Module):
    """Takes a while to write: 256 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1 << 26))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * x).sum()


def test_an_interrupt_leaves_nothing(binary: Path, tmp_path: Path) -> None:
    torch.jit.script(Large()).save(str(tmp_path / "large.pt"))
    (tmp_path / "out.pt").write_text("before")
    process = subprocess.Popen([binary, "lower", "large.pt", "out.pt", "--strategy", "all"], cwd=tmp_path)
    while not list(tmp_path.glob("out.pt.*.tmp")):
        assert process.poll() is None, "the file was never seen under another name"
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == -signal.SIGINT
    assert sorted(os.listdir(tmp_path)) == ["large.pt", "out.pt"]
    assert (tmp_path / "out.pt").read_text() == "before"
