"""Option save_ir: files with forward and backward before and after recomputation."""

import gc
import json
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import STRATEGIES, assert_same, lowered_copy, step
from support.nets import Net
from support.several_regions import Broken, rows

KINDS = ("FW.txt", "FW.py", "FW.dot", "FW.svg", "BW.txt", "BW.py", "BW.dot", "BW.svg", "FW_BW.dot", "FW_BW.svg")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MODEL_NAME", "RUN_ID", "RECOMPUTE_SAVE_IR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PROJECT_ROOT", str(tmp_path))
    return tmp_path


def run_folder(project: Path, model: str = "Net") -> Path:
    (folder,) = (project / "IR_artifacts" / model / "runs").iterdir()
    return folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def all_kinds(*stems: str) -> set[str]:
    return {f"{folder}/{stem}.{kind}" for folder in ("capture", "recompute") for stem in stems for kind in KINDS}


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text()


def test_files_show_what_is_computed_again(project: Path) -> None:
    lowered = lowered_copy(Net(), {"strategy": "names", "keywords": ["tanh"]}, save_ir=True, profile=True)
    lowered(torch.randn(64, 16)).backward()
    folder = run_folder(project)
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{os.getpid()}(-\d+)?", folder.name)
    assert files(folder) == all_kinds("forward.s0.r0.v0") | {"recompute/forward.plan.json"}

    captured, planned = (read(folder, f"{part}/forward.s0.r0.v0.BW.txt") for part in ("capture", "recompute"))
    assert "aten::tanh_backward" in captured
    assert "_recomputed" not in captured
    assert "aten::tanh(" not in captured, "the result of the forward is kept"
    assert re.search(r"%tanh_0\w*_recomputed : Tensor = aten::tanh", planned)

    code = read(folder, "recompute/forward.s0.r0.v0.BW.py")
    assert code.startswith("def backward(")
    assert re.search(r"tanh_0\w*_recomputed = torch.tanh\(sigmoid_0\w*\)", code)
    assert "torch.tanh" in read(folder, "recompute/forward.s0.r0.v0.FW.py")
    kept = [read(folder, f"{part}/forward.s0.r0.v0.FW.txt").splitlines()[-1] for part in ("capture", "recompute")]
    assert ["%tanh_0" in line for line in kept] == [True, False]
    assert ["%sigmoid_0" in line for line in kept] == [True, True]

    graphs = json.loads(read(folder, "recompute/forward.plan.json"))
    assert graphs["format"] == "aten_recompute.plan/1"
    aten_recompute.save_plan(lowered, project / "plan.json")
    assert graphs == json.loads(read(project, "plan.json"))


def test_nothing_is_written_without_the_option(project: Path) -> None:
    lowered_copy(Net(), "all")(torch.randn(64, 16)).backward()
    assert not os.listdir(project)


@pytest.mark.parametrize("strategy", ["all", "segments", "none"])
def test_gradients_are_the_same(strategy: str) -> None:
    eager = Net()
    lowered = lowered_copy(eager, STRATEGIES[strategy], save_ir=True)
    x = torch.randn(64, 16)
    for _ in range(2):
        outputs, gradients = step(lowered, list(lowered.parameters()), (x,))
        expected_outputs, expected_gradients = step(eager, list(eager.parameters()), (x,))
        assert_same(outputs, expected_outputs)
        assert_same(gradients, expected_gradients)


def test_names_come_from_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SAVE_IR", "1")
    monkeypatch.setenv("MODEL_NAME", "mine")
    monkeypatch.setenv("RUN_ID", "first")
    lowered_copy(Net(), "all")(torch.randn(64, 16)).backward()
    assert files(project) == {f"IR_artifacts/mine/runs/first/{name}" for name in all_kinds("forward.s0.r0.v0")}


def test_methods_specializations_and_variants_have_files_of_their_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUN_ID", "methods")
    lowered = lowered_copy(Net(), "all", methods=("forward", "encode"), save_ir=True)
    x = torch.randn(64, 16)
    lowered(x).backward()
    lowered.encode(x).sum().backward()
    lowered(torch.randn(3, 64, 16)).backward()  # another rank
    lowered(x.requires_grad_()).backward()  # another set of inputs that require grad
    folder = run_folder(project)
    assert folder.name == "methods"
    stems = ("forward.s0.r0.v0", "forward.s0.r0.v1", "forward.s1.r0.v0", "encode.s0.r0.v0")
    assert files(folder) == all_kinds(*stems)
    times = {name: (folder / name).stat().st_mtime_ns for name in files(folder)}
    lowered(x).backward()
    assert {name: (folder / name).stat().st_mtime_ns for name in files(folder)} == times, "written once"


def test_modules_of_one_name_have_folders_of_their_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_ID", "twice")
    for _ in range(2):
        lowered_copy(Net(), "all", save_ir=True)(torch.randn(64, 16)).backward()
    assert {path.name for path in (project / "IR_artifacts/Net/runs").iterdir()} == {"twice", "twice-2"}


@pytest.mark.usefixtures("keeps_control_flow")
def test_several_regions(project: Path) -> None:
    lowered = lowered_copy(Broken(), "budget", memory_budget=0.9, unreachable="leanest", save_ir=True)
    for _ in range(2):
        lowered(rows(64)).backward()
    names = files(run_folder(project, "Broken"))
    assert {name.split(".")[2] for name in names if name.endswith("BW.py")} >= {"r0", "r1", "r2"}
    assert "recompute/forward.plan.json" in names


def test_operators_without_a_schema_are_calls(project: Path) -> None:
    class Drops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.dropout(torch.special.i0e(x).tanh()).sum()

    lowered = lowered_copy(Drops(), "all", save_ir=True)
    lowered(torch.randn(64, 16, requires_grad=True)).backward()
    code = read(run_folder(project, "Drops"), "recompute/forward.s0.r0.v0.BW.py")
    assert re.search(r"^def replay_random_\d\(", code, re.MULTILINE)
    assert re.search(r"= replay_random_\d\(random_state\w*, ", code)
    assert re.search(r"^  return torch.special_i0e\(", code, re.MULTILINE)
    assert re.search(r"= tape_backward\(special_i0e_0_tape\w*, ", code)


def run_in_a_process(project: Path, **environment: str) -> str:
    """Trains for a step with the environment, prints "trained", and returns standard error."""
    script = (
        "import torch, aten_recompute; net = torch.jit.script(torch.nn.Linear(3, 3));"
        "lowered = aten_recompute.lower(net, 'all');"
        "[lowered(torch.randn(2, 3)).sum().backward() for _ in range(2)]; print('trained')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore:`torch.jit.script` is deprecated", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=project,
        env={**os.environ, "RECOMPUTE_LOG_LEVEL": "WARNING", **environment},
    )
    assert done.stdout == "trained\n"
    return done.stderr


def test_the_current_folder_is_the_project(project: Path) -> None:
    assert run_in_a_process(project, PROJECT_ROOT="", RECOMPUTE_SAVE_IR="1", RUN_ID="here") == ""
    assert os.listdir(project / "IR_artifacts/Linear/runs") == ["here"]


def test_a_folder_that_cannot_be_written_is_one_line(project: Path) -> None:
    (project / "IR_artifacts").write_text("a file")
    log = run_in_a_process(project, RECOMPUTE_SAVE_IR="1")
    assert re.fullmatch(
        r".*save_ir: cannot make the folder \S*IR_artifacts/Linear/runs/\S*: Not a directory; "
        r"no more graphs of this module are written\n",
        log,
    )


def test_an_unknown_value_is_one_line(project: Path) -> None:
    log = run_in_a_process(project, RECOMPUTE_SAVE_IR="yes")
    assert re.fullmatch(r'.*RECOMPUTE_SAVE_IR is "yes"; accepted are 1 and 0\. No graphs are written\.\n', log)
    assert not os.listdir(project)


def test_the_option_is_checked() -> None:
    with pytest.raises(ValueError, match=r'^aten_recompute: .*"save_ir": got "maybe", accepted is true or false$'):
        lowered_copy(Net(), "all", save_ir="maybe")


def test_without_graphviz_there_are_no_pictures(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    lowered_copy(Net(), "all", save_ir=True)(torch.randn(64, 16)).backward()
    assert files(run_folder(project)) == {n for n in all_kinds("forward.s0.r0.v0") if not n.endswith(".svg")}


@pytest.mark.lowered_only
def test_a_saved_module_writes_where_it_is_loaded(project: Path, tmp_path: Path) -> None:
    lowered: Any = lowered_copy(Net(), "all", save_ir=True)
    lowered.save(tmp_path / "net.pt")
    aten_recompute.load(tmp_path / "net.pt")(torch.randn(64, 16)).backward()
    assert files(run_folder(project)) == all_kinds("forward.s0.r0.v0")


def test_a_module_that_is_gone_leaves_no_memory(project: Path) -> None:
    lowered = lowered_copy(Net(), "all", save_ir=True)
    lowered(torch.randn(64, 16)).backward()
    parameter = weakref.ref(next(lowered.parameters()))
    del lowered
    gc.collect()
    assert parameter() is None
