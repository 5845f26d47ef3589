"""``aten-recompute plan`` tells the peaks of steps that it runs."""

import pytest
import torch

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
    assert peaks == sorted(peaks, reverse=True)
    assert seconds == sorted(seconds)


def test_a_sweep_is_shown_from_the_largest_to_the_smallest_peak(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--sweep")
    assert (result.status, result.error) == (0, "")
    bars = [line.count("#") for line in result.out.splitlines()[1:]]
    assert 2 < len(bars) <= 17
    assert bars[0] == 30
    assert bars == sorted(bars, reverse=True)


def test_an_unreachable_budget_ends_with_status_5_after_the_others(command: Command, model: str) -> None:
    result = command("plan", model, "--input", INPUT, "--budget", "0.8,1KiB")
    result.fails(5, "budget 1KiB: no plan keeps the peak under 1.0 KiB; the smallest peak is")
    assert "budget 0.8" in result.out


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, ["--input", INPUT], "--budget or --sweep is required"),
        (2, ["--input", INPUT, "--budget", "2x"], '"memory_budget"'),
        (2, ["--input", INPUT, "--sweep", "--steps", "0"], "--steps"),
        (2, ["--input", INPUT, "--sweep", "--set", "strategy=all"], "--set strategy"),
        (6, ["--input", "float32[8,63]", "--sweep"], "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_what_is_wrong_is_one_line(command: Command, model: str, status: int, arguments: list[str], part: str) -> None:
    command("plan", model, *arguments).fails(status, part)
