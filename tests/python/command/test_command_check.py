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


def test_a_budget_counts(command: Command, model: str) -> None:
    estimate = command("estimate", model, "--input", INPUT, "--budget", "0.6", "--json").json
    limit = str(estimate["budgets"][0]["peak_bytes"])
    command("check", model, "--input", INPUT, "--max-peak", limit).fails(1)
    result = command("check", model, "--input", INPUT, "--max-peak", limit, "--budget", "0.6")
    assert (result.status, result.error) == (0, "")
    assert "with budget 0.6 peaks at" in result.out


def test_the_budget_of_a_lowered_file_counts(command: Command, model: str) -> None:
    limit = command("estimate", model, "--input", INPUT, "--budget", "0.6", "--json").json["budgets"][0]["peak_bytes"]
    command("lower", model, "out.pt", "--budget", "0.6")
    result = command("check", "out.pt", "--input", INPUT, "--max-peak", str(limit), "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["peak_bytes"] == limit
    assert result.json["budget"] == "0.6"


def test_a_file_of_another_strategy_is_no_success(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--strategy", "all")
    command("check", "out.pt", "--input", INPUT, "--max-peak", "1TiB").fails(6, "lowered with strategy all")


@pytest.mark.parametrize("limit", ["much", "0", "-1MiB", "5 parsecs", ""])
def test_a_limit_that_is_no_size_ends_with_status_2(command: Command, model: str, limit: str) -> None:
    command("check", model, "--input", INPUT, f"--max-peak={limit}").fails(2, "--max-peak")


def test_an_unreachable_budget_ends_with_status_5(command: Command, model: str) -> None:
    command("check", model, "--input", INPUT, "--max-peak", "1GiB", "--budget", "1KiB").fails(5, "budget 1KiB")
