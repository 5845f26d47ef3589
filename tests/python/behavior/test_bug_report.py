"""``save_bug_report`` writes one file with all that is known about a planned module, and no tensors."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute

SECRET = 0.7853125  # a parameter has this value, which no file may name


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 8)
        nn.init.constant_(self.first.weight, SECRET)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x))).sum()

    @torch.jit.export
    def score(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x)).sum()


def content(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    return {name: json.loads(text) if name.endswith(".json") else text for name, text in texts.items()}


def test_a_trained_module_has_versions_options_graphs_plan_and_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_LOGS", "-memory")
    lowered = aten_recompute.lower(torch.jit.script(Net()), "budget", memory_budget=0.9, methods=("forward", "score"))
    lowered(torch.full((16, 8), SECRET)).backward()
    aten_recompute.save_bug_report(lowered, tmp_path / "report.zip")
    found = content(tmp_path / "report.zip")
    assert sorted(found) == [
        "graphs/forward.txt",
        "graphs/score.txt",
        "plan.json",
        "problems/0.json",
        "report.json",
        "tensors.json",
        "versions.json",
    ]
    versions = found["versions.json"]
    assert versions["format"] == "aten_recompute.bug_report/1"
    assert (versions["aten_recompute"], versions["torch"]) == (aten_recompute.__version__, torch.__version__)
    assert versions["environment"]["RECOMPUTE_LOGS"] == "-memory"
    assert found["report.json"]["methods"][0]["options"]["memory_budget"] == 0.9
    assert "aten::relu" in found["graphs/forward.txt"]
    assert "aten::tanh" in found["graphs/score.txt"]
    assert found["plan.json"]["format"] == "aten_recompute.plan/1"
    assert found["problems/0.json"] == aten_recompute.problems(lowered)[0]
    assert [(each["name"], each["shape"]) for each in found["tensors.json"]][:2] == [
        ("first.weight", [32, 8]),
        ("first.bias", [32]),
    ]


def test_the_plan_and_the_problem_can_be_used(tmp_path: Path) -> None:
    module = torch.jit.script(Net())
    lowered = aten_recompute.lower(module, "budget", memory_budget=0.9)
    x = torch.randn(16, 8)
    lowered(x).backward()
    aten_recompute.save_bug_report(lowered, tmp_path / "report.zip")
    found = content(tmp_path / "report.zip")
    again = aten_recompute.lower(module, plan=found["plan.json"])
    again(x).backward()
    (method,) = aten_recompute.report(again)["methods"]
    assert method["specialisations"][0]["regions"][0]["variants"]
    assert aten_recompute.plan_problem(found["problems/0.json"], 1 << 30)["peak_bytes"] > 0


def test_no_value_of_a_tensor_is_in_the_file(tmp_path: Path) -> None:
    lowered = aten_recompute.lower(torch.jit.script(Net()), "budget", memory_budget=0.9)
    lowered(torch.full((16, 8), SECRET)).backward()
    aten_recompute.save_bug_report(lowered, tmp_path / "report.zip")
    with zipfile.ZipFile(tmp_path / "report.zip") as archive:
        assert not any(str(SECRET).encode() in archive.read(name) for name in archive.namelist())
    assert (tmp_path / "report.zip").stat().st_size < 64 << 10


def test_a_module_that_has_not_run_has_its_graph_and_is_not_run(tmp_path: Path) -> None:
    lowered = aten_recompute.lower(torch.jit.script(Net()), "all", profile=True)
    aten_recompute.save_bug_report(lowered, tmp_path / "report.zip")
    found = content(tmp_path / "report.zip")
    assert sorted(found) == ["graphs/forward.txt", "plan.json", "report.json", "tensors.json", "versions.json"]
    assert found["report.json"]["methods"][0]["specialisations"] == []
    assert "aten::linear" in found["graphs/forward.txt"]
    assert aten_recompute.report(lowered)["methods"][0]["specialisations"] == []


@pytest.mark.parametrize("runs", [False, True])
def test_an_enabled_function(runs: bool, tmp_path: Path) -> None:
    @torch.jit.script
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return (torch.tanh(x) - y).square().mean()

    aten_recompute.enable(loss, "all", profile=True)
    try:
        if runs:
            loss(torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)).backward()
        aten_recompute.save_bug_report(loss, tmp_path / "report.zip")
    finally:
        aten_recompute.disable(loss)
    found = content(tmp_path / "report.zip")
    (graph,) = [text for name, text in found.items() if name.startswith("graphs/")]
    assert "aten::tanh" in graph
    assert ("problems/0.json" in found) == runs
    assert found["tensors.json"] == []


def test_an_enabled_module_and_one_that_contains_a_lowered_one(tmp_path: Path) -> None:
    module = torch.jit.script(Net())
    aten_recompute.enable(module, "all")
    try:
        aten_recompute.save_bug_report(module, tmp_path / "enabled.zip")
    finally:
        aten_recompute.disable(module)
    assert "aten::relu" in content(tmp_path / "enabled.zip")["graphs/forward.txt"]


def test_a_call_that_failed_leaves_a_report(tmp_path: Path) -> None:
    lowered = aten_recompute.lower(torch.jit.script(Net()), "budget", memory_budget=64)
    with pytest.raises(aten_recompute.BudgetUnreachableError):
        lowered(torch.randn(16, 8))
    aten_recompute.save_bug_report(lowered, tmp_path / "report.zip")
    assert content(tmp_path / "report.zip")["report.json"]["methods"][0]["options"]["memory_budget"] == 64


def test_what_is_not_planned_is_one_line_and_no_file(tmp_path: Path) -> None:
    @torch.jit.script
    def plain(x: Tensor) -> Tensor:
        return x + 1

    wrong: tuple[tuple[Any, type[Exception]], ...] = (
        (torch.jit.script(Net()), aten_recompute.NotLoweredError),
        (plain, aten_recompute.NotEnabledError),
        (Net(), TypeError),
    )
    for target, error in wrong:
        with pytest.raises(error, match=r"^(?!.*\n)"):
            aten_recompute.save_bug_report(target, tmp_path / "report.zip")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_one_line_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered = aten_recompute.lower(torch.jit.script(Net()), "all")
    path = tmp_path / "none" / "report.zip"
    with pytest.raises(OSError, match=rf"^save_bug_report: cannot write {path}: No such file or directory$"):
        aten_recompute.save_bug_report(lowered, path)
    with pytest.raises(OSError, match=rf"^save_bug_report: cannot write {tmp_path}: it is a folder$"):
        aten_recompute.save_bug_report(lowered, tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "report.zip"
    path.write_text("before")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"No space left on device$"):
        aten_recompute.save_bug_report(lowered, path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["report.zip"]
