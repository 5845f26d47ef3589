"""``aten-recompute plan`` tells the peaks of steps that it runs."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.command_runs import INPUT, WIDTH, Command


def test_the_peaks_are_those_of_python_within_1_percent(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--budget", "0.6", "--set", "cost_model=flops", "--json")
    assert (result.status, result.error) == (0, "")
    (plan,) = result.json["budgets"]
    lowered = aten_recompute.lower(torch.jit.load(model), "budget", memory_budget=0.6, cost_model="flops")
    for _ in range(2):
        lowered(torch.randn(1024, WIDTH)).backward()
    specialization = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]
    figures = specialization["regions"][0]["variants"][-1]
    for key in ("predicted_peak_bytes", "unplanned_peak_bytes", "measured_peak_bytes"):
        assert plan[key] == pytest.approx(figures[key], rel=0.01)
    assert plan["measured_peak_bytes"] == pytest.approx(plan["predicted_peak_bytes"], rel=0.01)
    assert plan["predicted_peak_bytes"] <= 0.6 * plan["unplanned_peak_bytes"]


def test_the_text_has_a_row_for_each_budget(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--budget", "0.8,0.6")
    assert (result.status, result.error) == (0, "")
    assert [line.split("  ")[0] for line in result.out.splitlines()] == [
        "plan",
        "no recomputation",
        "budget 0.8",
        "budget 0.6",
    ]


def test_a_sweep_has_falling_peaks_and_rising_times(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--sweep", "--json")
    assert (result.status, result.error) == (0, "")
    points = result.json["tradeoff"]
    assert len(points) > 2
    peaks, seconds = ([point[key] for point in points] for key in ("peak_bytes", "seconds"))
    assert peaks == sorted(set(peaks), reverse=True)
    assert seconds == sorted(set(seconds))
    everything = command("plan", model, "--input", INPUT, "--budget", "1.0", "--json").json["budgets"][0]
    assert peaks[0] == everything["unplanned_peak_bytes"]


def test_a_sweep_is_shown_from_the_largest_to_the_smallest_peak(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--sweep")
    assert (result.status, result.error) == (0, "")
    bars = [line.count("#") for line in result.out.splitlines()[1:]]
    assert 2 < len(bars) <= 17
    assert bars[0] == 30
    assert bars == sorted(bars, reverse=True)


class NoGradient(nn.Module):
    """Has a parameter, and a result of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.argmax(self.linear(x), 1)


@pytest.mark.parametrize("arguments", [["--budget", "0.5"], ["--budget", "1.0"], ["--sweep"]])
def test_a_result_without_gradient_ends_with_status_6(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    torch.jit.script(NoGradient()).save(str(tmp_path / "in.pt"))
    command("plan", "in.pt", "--input", "float32[8,4]", *arguments).fails(6, "no result of forward needs a gradient")


def test_an_unreachable_budget_ends_with_status_5_after_the_others(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--budget", "0.8,1KiB")
    result.fails(5, "budget 1KiB: no plan keeps the peak under 1.0 KiB; the smallest peak is")
    assert "budget 0.8" in result.out


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, ["--input", INPUT], "--budget or --sweep is required"),
        (2, ["--input", INPUT, "--budget", "2x"], '--budget: got "2x"'),
        (2, ["--input", INPUT, "--sweep", "--steps", "0"], "--steps"),
        (2, ["--input", INPUT, "--sweep", "--set", "strategy=all"], "--set strategy"),
        (6, ["--input", "float32[8,63]", "--sweep"], "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_what_is_wrong_is_one_line(command: Command, model: str, status: int, arguments: list[str], part: str) -> None:
    command("plan", model, *arguments).fails(status, part)


SVG = "{http://www.w3.org/2000/svg}"


def titles(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def place(point: ElementTree.Element) -> tuple[float, float]:
    """Returns where a plan is: the center of a circle, or the tip of an arrow."""
    if point.tag == f"{SVG}circle":
        return float(point.get("cx", "")), float(point.get("cy", ""))
    x, y = point.get("d", "").split("L")[1].split(" ")
    return float(x), float(y)


def test_a_picture_has_every_plan_and_the_budgets(command: Command, model: str, tmp_path: Path) -> None:
    arguments = ("--input", INPUT, "--sweep", "--budget", "0.7,0.6,1KiB", "--svg", "out.svg", "--json")
    result = command("plan", model, *arguments)
    result.fails(5, "budget 1KiB")
    assert os.listdir(tmp_path) == ["out.svg"]
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    points = result.json["tradeoff"]
    places = [place(each) for each in root.iter() if each.get("class") == "plan"]
    assert len(places) == len(points) > 2
    assert places == sorted(places, key=lambda place: (-place[0], -place[1]))
    # Places follow from the figures by one scale for each axis.
    first, last = points[0], points[-1]
    scale = (places[0][0] - places[-1][0]) / (first["peak_bytes"] - last["peak_bytes"])
    for point, (x, _) in zip(points, places, strict=True):
        assert x == pytest.approx(places[0][0] + scale * (point["peak_bytes"] - first["peak_bytes"]), abs=0.1)
    marks = [title.split(":")[0] for title in titles(root) if title.startswith("budget ")]
    assert marks == ["budget 0.7", "budget 0.6"]
    labels = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert any(label.startswith("budget 0.6: ") for label in labels)
    assert any(label.startswith("no recomputation: ") for label in labels)


def test_labels_of_a_picture_do_not_leave_it(command: Command, model: str, tmp_path: Path) -> None:
    budgets = ",".join(f"0.{share}" for share in range(55, 99, 3))
    result = command("plan", model, "--input", INPUT, "--sweep", "--budget", budgets, "--svg", "out.svg")
    assert (result.status, result.error) == (0, "")
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    width = float(root.get("width", ""))
    for text in root.iter(f"{SVG}text"):
        if text.get("text-anchor") == "start" and text.get("class") is None:
            assert float(text.get("x", "")) + 7.0 * len(text.text or "") < width + 4.0


def test_a_name_with_markup_is_no_markup_in_a_picture(command: Command, model: str, tmp_path: Path) -> None:
    name = 'a<b>&"c".pt'
    (tmp_path / name).write_bytes(Path(model).read_bytes())
    assert command("plan", name, "--input", INPUT, "--sweep", "--svg", "out.svg").status == 0
    assert titles(ElementTree.parse(tmp_path / "out.svg").getroot())[0] == f"{name}: one step of forward"
    (tmp_path / os.fsdecode(b"\xff.pt")).write_bytes(Path(model).read_bytes())
    assert command("plan", os.fsdecode(b"\xff.pt"), "--input", INPUT, "--sweep", "--svg", "out.svg").status == 0
    assert titles(ElementTree.parse(tmp_path / "out.svg").getroot())[0] == "?.pt: one step of forward"


def test_nothing_in_a_picture_comes_from_elsewhere(command: Command, model: str, tmp_path: Path) -> None:
    command("plan", model, "--input", INPUT, "--sweep", "--svg", "out.svg")
    text = (tmp_path / "out.svg").read_text()
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in text


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, ["--svg", "out.svg", "--budget", "0.6"], "--sweep"),
        (4, ["--svg", "missing/out.svg", "--sweep"], "missing/out.svg: cannot be written: No such file or directory"),
        (4, ["--svg", ".", "--sweep"], "cannot be written: Is a directory"),
        (2, ["--svg", "out.svg", "--sweep", "--input", "3"], "too many"),
    ],
)
def test_a_picture_that_cannot_be_made_leaves_nothing(
    command: Command, model: str, tmp_path: Path, status: int, arguments: list[str], part: str
) -> None:
    command("plan", model, "--input", INPUT, *arguments).fails(status, part)
    assert os.listdir(tmp_path) == []


def test_a_step_that_fails_leaves_no_picture(command: Command, model: str, tmp_path: Path) -> None:
    (tmp_path / "out.svg").write_text("before")
    command("plan", model, "--input", "float32[8,63]", "--sweep", "--svg", "out.svg").fails(6, "mat1 and mat2")
    assert os.listdir(tmp_path) == ["out.svg"]
    assert (tmp_path / "out.svg").read_text() == "before"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_picture(binary: Path, model: str, tmp_path: Path, number: int) -> None:
    (tmp_path / "out.svg").write_text("before")
    arguments = ["plan", model, "--input", INPUT, "--sweep", "--steps", "1000", "--svg", "out.svg"]
    process = subprocess.Popen([binary, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("out.svg.*.tmp")):
        assert process.poll() is None, "the file was never seen under another name"
        time.sleep(0.001)
    process.send_signal(number)
    assert process.wait(timeout=60) == -number
    assert os.listdir(tmp_path) == ["out.svg"]
    assert (tmp_path / "out.svg").read_text() == "before"


def test_a_full_disk_leaves_no_picture(limited: Command, model: str, tmp_path: Path) -> None:
    budgets = ",".join(f"0.{share}" for share in range(550, 990, 20))
    arguments = ("--input", INPUT, "--sweep", "--budget", budgets, "--svg", "out.svg")
    limited("plan", model, *arguments).fails(4, "out.svg: cannot be written: File too large")
    assert os.listdir(tmp_path) == []
