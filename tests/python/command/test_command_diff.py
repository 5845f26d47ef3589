"""``aten-recompute diff`` names what two plans keep and recompute differently."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import aten_recompute
from support.command_runs import INPUT, WIDTH, Command

KEPT_TO_RECOMPUTED = "kept_in_a_recomputed_in_b"


def write_plan(model: str, path: Path, budget: float) -> dict[str, Any]:
    """Saves the plan of a budget, and returns its only region."""
    options: Any = {"memory_budget": budget, "cost_model": "flops"}
    lowered = aten_recompute.lower(torch.jit.load(model), "budget", **options)
    for _ in range(2):
        lowered(torch.randn(1024, WIDTH)).backward()
    aten_recompute.save_plan(lowered, str(path))
    (region,) = json.loads(path.read_text())["regions"]
    return dict(region)


@pytest.fixture
def plans(model: str, tmp_path: Path) -> list[dict[str, Any]]:
    """Writes a.json and b.json, of which the second one keeps less, and returns their regions."""
    return [write_plan(model, tmp_path / f"{name}.json", budget) for name, budget in (("a", 0.9), ("b", 0.6))]


def names(values: list[dict[str, Any]]) -> set[str]:
    return {each["value"] for each in values}


def changed(result: Any, key: str) -> dict[str, int]:
    """Returns the bytes of the values that differ, by name."""
    return {each["value"]: each["bytes"] for layer in result[key]["layers"] for each in layer["values"]}


def test_times_that_cancel_out_are_no_time(command: Command, plans: list[dict[str, Any]], tmp_path: Path) -> None:
    plan = json.loads((tmp_path / "a.json").read_text())
    plan["regions"][0]["recompute_seconds"] = -6.9e-18
    (tmp_path / "a.json").write_text(json.dumps(plan))
    assert "-0" not in command("diff", "a.json", "b.json").out
    assert command("diff", "a.json", "b.json", "--json").json["a"]["recompute_seconds"] == 0.0


def test_values_that_one_plan_keeps_and_the_other_recomputes_are_named(
    command: Command, plans: list[dict[str, Any]]
) -> None:
    result = command("diff", "a.json", "b.json", "--json")
    assert (result.status, result.error) == (0, "")
    a, b = plans
    expected = (names(a["saved"]) & names(b["recomputed"])) - names(b["saved"])
    assert expected
    found = changed(result.json, KEPT_TO_RECOMPUTED)
    assert found == {each["value"]: each["bytes"] for each in a["saved"] if each["value"] in expected}
    assert result.json[KEPT_TO_RECOMPUTED]["bytes"] == sum(found.values())
    layers = {each["layer"] for each in a["saved"] if each["value"] in expected and "layer" in each}
    assert layers
    assert {layer["layer"] for layer in result.json[KEPT_TO_RECOMPUTED]["layers"]} - {""} == layers
    for key, region in (("a", a), ("b", b)):
        assert result.json[key]["peak_bytes"] == region["peak_bytes"]
        assert result.json[key]["seconds"] == region["seconds"]
    assert result.json["b"]["peak_bytes"] < result.json["a"]["peak_bytes"]


def test_the_other_way_round_the_letters_are_exchanged(command: Command, plans: list[dict[str, Any]]) -> None:
    forth, back = (command("diff", *files, "--json").json for files in (("a.json", "b.json"), ("b.json", "a.json")))
    for key in ("kept_in_a_recomputed_in_b", "kept_in_a_only", "recomputed_in_a_only"):
        other = key.replace("in_a", "in_?").replace("in_b", "in_a").replace("in_?", "in_b")
        assert forth[key] == back[other]
        assert forth[other] == back[key]
    assert forth["a"] == back["b"]


def test_every_value_that_differs_is_in_one_list(command: Command, plans: list[dict[str, Any]]) -> None:
    result = command("diff", "a.json", "b.json", "--json").json
    keys = [key for key, value in result.items() if isinstance(value, dict) and "layers" in value]
    listed = [name for key in keys for name in changed(result, key)]
    a, b = ({key: names(region[key]) for key in ("saved", "recomputed")} for region in plans)
    differing = (a["saved"] ^ b["saved"]) | (a["recomputed"] ^ b["recomputed"])
    assert sorted(listed) == sorted(differing)


def test_the_text_has_a_table_by_layer(command: Command, plans: list[dict[str, Any]]) -> None:
    text = command("diff", "a.json", "b.json").out
    assert text.splitlines()[1].startswith("A  a.json")
    assert "\nkept in A, recomputed in B: " in text
    value = next(iter(changed(command("diff", "a.json", "b.json", "--json").json, KEPT_TO_RECOMPUTED)))
    assert value not in text
    assert value in command("diff", "a.json", "b.json", "--values").out


def test_rows_are_layers_down_to_the_depth(command: Command, plans: list[dict[str, Any]]) -> None:
    def rows(depth: int) -> list[list[str]]:
        text = command("diff", "a.json", "b.json", "--depth", str(depth)).out
        table = text.partition("kept in A, recomputed in B: ")[2].split("\n\n")[0].splitlines()[2:]
        return [re.split("  +", row.strip()) for row in table]

    changes = command("diff", "a.json", "b.json", "--json").json[KEPT_TO_RECOMPUTED]["layers"]
    paths = [each["layer"] for each in changes]
    assert any(path.count(".") >= 2 for path in paths)
    for depth in (1, 2, 100):
        expected = {".".join(path.split(".")[:depth]) or "(outside of layers)" for path in paths}
        assert {row[0] for row in rows(depth)} == expected
        assert sum(int(row[1]) for row in rows(depth)) == sum(len(each["values"]) for each in changes)


def test_equal_plans_do_not_differ(command: Command, plans: list[dict[str, Any]]) -> None:
    result = command("diff", "a.json", "a.json")
    assert (result.status, result.error) == (0, "")
    assert "Both keep and recompute the same values." in result.out
    assert command("diff", "a.json", "a.json", "--json").json["differ"] is False


def test_modules_are_planned_for_the_inputs(command: Command, model: str) -> None:
    command("lower", model, "half.pt", "--budget", "0.6", "--set", "cost_model=flops")
    result = command("diff", model, "half.pt", "--input", INPUT, "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["differ"] is True
    assert changed(result.json, KEPT_TO_RECOMPUTED)
    assert not changed(result.json, "kept_in_b_recomputed_in_a")
    settings = ("--budget", "0.6", "--set", "cost_model=flops")
    (plan,) = command("plan", model, "--input", INPUT, *settings, "--json").json["budgets"]
    assert result.json["b"]["peak_bytes"] == pytest.approx(plan["predicted_peak_bytes"], rel=0.01)
    assert result.json["a"]["peak_bytes"] == pytest.approx(plan["unplanned_peak_bytes"], rel=0.01)


def test_a_module_that_was_lowered_with_a_plan_needs_no_inputs(
    command: Command, model: str, tmp_path: Path, plans: list[dict[str, Any]]
) -> None:
    lowered = aten_recompute.lower(torch.jit.load(model), plan=str(tmp_path / "b.json"))
    lowered.save(str(tmp_path / "planned.pt"))
    result = command("diff", "b.json", "planned.pt", "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["differ"] is False
    assert result.json["b"]["peak_bytes"] == plans[1]["peak_bytes"]


class Other(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)).sum()


def test_plans_of_different_models_end_with_status_2(
    command: Command, tmp_path: Path, plans: list[dict[str, Any]]
) -> None:
    torch.jit.script(Other()).save(str(tmp_path / "other.pt"))
    command("diff", "a.json", "other.pt", "--input", INPUT).fails(2, "plans of different models")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "neither a plan file nor a TorchScript module"),
        ("{", "no valid JSON"),
        ("{}", '"format" is not "aten_recompute.plan/1"'),
        ('{"format": "aten_recompute.plan/1"}', "not a plan file"),
        ('{"format": "aten_recompute.plan/1", "regions": 5}', "not a plan file"),
        ('{"format": "aten_recompute.plan/1", "regions": [{"region": "x"}]}', "save the plan again"),
        ('{"format": "aten_recompute.plan/1", "regions": [{"region": 5, "recomputed": []}]}', "not a plan file"),
        ("PK\x03\x04 and nothing more", "not a TorchScript module that can be loaded"),
        ("[1, 2]", "neither a plan file nor a TorchScript module"),
    ],
)
def test_a_file_that_is_no_plan_ends_with_status_3(
    command: Command, tmp_path: Path, plans: list[dict[str, Any]], content: str, part: str
) -> None:
    (tmp_path / "bad.json").write_text(content)
    command("diff", "a.json", "bad.json").fails(3, "bad.json: ", part)


def test_a_plan_that_is_cut_short_ends_with_status_3(
    command: Command, tmp_path: Path, plans: list[dict[str, Any]]
) -> None:
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    command("diff", "cut.json", "a.json").fails(3, "cut.json: not a plan file: no valid JSON")


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, ["a.json"], "b is required"),
        (3, ["a.json", "missing.json"], "missing.json: cannot be opened"),
        (2, ["a.json", "b.json", "c.json"], "c.json"),
    ],
)
def test_what_is_wrong_is_one_line(
    command: Command, plans: list[dict[str, Any]], status: int, arguments: list[str], part: str
) -> None:
    command("diff", *arguments).fails(status, part)


def test_a_module_without_a_plan_needs_inputs(command: Command, model: str) -> None:
    command("diff", model, model).fails(2, "so --input is required")
    command("diff", model, model, "--input", "float32[8,63]").fails(6, "mat1 and mat2 shapes cannot be multiplied")
    command("diff", model, model, "--input", INPUT, "--method", "walk").fails(2, 'no method "walk"')


class Rectified(torch.nn.Module):
    """Its results are written in place where nothing is recomputed. It prints, if asked to, between two regions."""

    def __init__(self, prints: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.prints = prints

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(torch.relu(x * 2)))
        if self.prints:
            print("between regions")
        return torch.tanh(self.second(torch.relu(x))).sum()


@pytest.mark.parametrize("prints", [False, True])
def test_a_module_is_compared_with_its_own_lowered_file(command: Command, tmp_path: Path, prints: bool) -> None:
    torch.jit.script(Rectified(prints)).save(str(tmp_path / "whole.pt"))
    assert command("lower", "whole.pt", "half.pt", "-b", "0.7").status == 0
    given = f"float32[1024,{WIDTH}]"
    result = command("diff", "whole.pt", "half.pt", "--input", given, "--json")
    assert result.status == 0, result.error
    found = result.json
    whole = command("estimate", "whole.pt", "--input", given, "--json").json
    assert found["a"]["peak_bytes"] == pytest.approx(whole["unplanned_peak_bytes"], rel=0.03)
    assert found["b"]["peak_bytes"] <= 0.7 * found["a"]["peak_bytes"]


def test_plans_of_strategies_that_rewrite_a_region_differently_are_compared(command: Command, tmp_path: Path) -> None:
    strategies = {
        "none": {"strategy": "none", "profile": True},
        "half": {"strategy": "budget", "memory_budget": 0.7},
    }
    for name, strategy in strategies.items():
        lowered = aten_recompute.lower(torch.jit.script(Rectified(False)), strategy)
        for _ in range(2):
            lowered(torch.randn(1024, WIDTH)).backward()
        aten_recompute.save_plan(lowered, str(tmp_path / f"{name}.json"))
    regions = [json.loads((tmp_path / f"{name}.json").read_text())["regions"][0]["region"] for name in ("none", "half")]
    assert regions[0] != regions[1]  # otherwise this tests nothing
    result = command("diff", "none.json", "half.json", "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["b"]["peak_bytes"] < result.json["a"]["peak_bytes"]
