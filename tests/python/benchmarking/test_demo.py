"""The demo trains both models equally, its checks hold, and it ends with one line if it cannot continue."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory import Tracker

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tracker: Tracker) -> Any:
    """The script as a module, with a model that trains in milliseconds."""
    spec = importlib.util.spec_from_file_location("demo", REPOSITORY / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)
    spec.loader.exec_module(module)
    for name, value in {"BLOCKS": 2, "WIDTH": 16, "HEADS": 2, "CONTEXT": 16, "BATCH": 4}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "CPP_TRAIN", REPOSITORY / "examples" / "not_built")
    return module


@pytest.mark.parametrize("arguments", [["--budget", "0.6"], ["--budget", "1GiB"], ["--strategy", "all"]])
def test_the_demo_runs_and_its_checks_hold(
    demo: Any, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(["--steps", "2", "--out", str(tmp_path), *arguments]) == 0
    output = capsys.readouterr().out
    assert "The losses agree" in output
    assert ("The budget of" in output) == ("--budget" in arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt.pt", "memory.png", "tokens.pt"]


def test_an_unreachable_budget_ends_with_one_line(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(["--steps", "2", "--out", str(tmp_path), "--budget", "0.01"]) == 1
    assert "the smallest that can be reached is" in capsys.readouterr().err.splitlines()[-1]


def test_different_losses_and_an_exceeded_budget_raise(demo: Any) -> None:
    ours, eager = (demo.Trainer(name, demo.GPT(1, 16, 2, 16, demo.VOCABULARY)) for name in ("lowered", "eager"))
    eager.losses, ours.losses = [2.0, 1.0], [2.0, 1.01]
    with pytest.raises(demo.DemoError, match="the losses do not agree"):
        demo.check_losses(eager, ours)
    ours.losses = [2.0, float("nan")]
    with pytest.raises(demo.DemoError, match="the losses do not agree"):
        demo.check_losses(eager, ours)
    ours.peaks = [100, 102]
    demo.check_budget(ours, demo.Prediction(peak=100, unplanned_peak=200, budget=102))
    with pytest.raises(demo.DemoError, match=r"the budget of .* is exceeded"):
        demo.check_budget(ours, demo.Prediction(peak=100, unplanned_peak=200, budget=100))
