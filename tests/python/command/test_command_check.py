"""``aten-recompute check`` passes and fails by the peak that ``estimate`` predicts."""

import pytest

from support.command_runs import INPUT, Command


def test_a_peak_at_the_limit_passes_and_one_above_fails(command: Command, model: str) -> None:
    peak = command("estimate", model, "--input", INPUT, "--json").json["unplanned_peak_bytes"]
    at = command("check", model, "--input", INPUT, "--max-peak", str(peak), "--json")
    assert (at.status, at.error) == (0, "")
    assert at.json["passed"] is True
    assert at.json["peak_bytes"] == at.json["max_peak_bytes"] == peak
    above = command("check", model, "--input", INPUT, "--max-peak", f"{peak - 1}B", "--json")
    above.fails(1, "above the limit of", "the smallest peak by recomputation is")
    assert above.json["passed"] is False


def test_equal_texts_of_different_figures_have_bytes(command: Command, model: str) -> None:
    peak = command("estimate", model, "--input", INPUT, "--json").json["unplanned_peak_bytes"]
    command("check", model, "--input", INPUT, "--max-peak", str(peak - 1)).fails(1, f"({peak} B)", f"({peak - 1} B)")


def test_a_step_may_use_all_of_its_budget(command: Command, model: str) -> None:
    estimate = command("estimate", model, "--input", INPUT, "--budget", "0.6", "--json").json
    budget, predicted = (estimate["budgets"][0][key] for key in ("budget_bytes", "peak_bytes"))
    assert predicted < budget
    command("check", model, "--input", INPUT, "--max-peak", str(budget)).fails(1)
    command("check", model, "--input", INPUT, "--max-peak", str(budget - 1), "--budget", "0.6").fails(1, "may peak at")
    result = command("check", model, "--input", INPUT, "--max-peak", str(budget), "--budget", "0.6")
    assert (result.status, result.error) == (0, "")
    assert "with budget 0.6 is predicted to peak at" in result.out


def test_a_budget_above_the_peak_of_all_counts_as_that_peak(command: Command, model: str) -> None:
    peak = command("estimate", model, "--input", INPUT, "--json").json["unplanned_peak_bytes"]
    result = command("check", model, "--input", INPUT, "--max-peak", str(peak), "--budget", "1GiB", "--json")
    assert (result.status, result.json["peak_bytes"]) == (0, peak)


def test_the_budget_of_a_lowered_file_counts(command: Command, model: str) -> None:
    budget = command("estimate", model, "--input", INPUT, "--budget", "0.6", "--json").json["budgets"][0]
    command("lower", model, "out.pt", "--budget", "0.6")
    result = command("check", "out.pt", "--input", INPUT, "--max-peak", str(budget["budget_bytes"]), "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["peak_bytes"] == budget["budget_bytes"]
    assert result.json["predicted_peak_bytes"] == budget["peak_bytes"]
    assert result.json["budget"] == "0.6"


def test_the_plan_that_runs_instead_of_an_unreachable_one_counts(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--budget", "1KiB", "--set", "unreachable=leanest")
    result = command("check", "out.pt", "--input", INPUT, "--max-peak", "1GiB", "--json")
    assert (result.status, result.error) == (0, "")
    figures = result.json
    assert figures["smallest_peak_bytes"] <= figures["peak_bytes"] < figures["unplanned_peak_bytes"]


def test_a_file_with_a_time_budget_is_no_success(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--budget", "0.6", "--set", "time_budget=1.5")
    command("check", "out.pt", "--input", INPUT, "--max-peak", "1TiB").fails(6, "time_budget, of which the peak")


def test_a_file_of_another_strategy_is_no_success(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--strategy", "all")
    command("check", "out.pt", "--input", INPUT, "--max-peak", "1TiB").fails(6, "lowered with strategy all")


@pytest.mark.parametrize("limit", ["much", "0", "0.5", "-1MiB", "5 parsecs", ""])
def test_a_limit_that_is_no_size_ends_with_status_2(command: Command, model: str, limit: str) -> None:
    command("check", model, "--input", INPUT, f"--max-peak={limit}").fails(2, "--max-peak")


def test_an_unreachable_budget_ends_with_status_5(command: Command, model: str) -> None:
    command("check", model, "--input", INPUT, "--max-peak", "1GiB", "--budget", "1KiB").fails(5, "budget 1KiB")
