"""The resident memory of whole processes, as benchmarks/resident.py measures it."""

import os

import pytest

from benchmarks.resident import in_own_process

pytestmark = pytest.mark.skipif(os.environ.get("ATEN_RECOMPUTE_ARENA") == "off", reason="arenas are switched off")


def measure(model: str, budget: str, what: str, arena: str = "keep") -> dict[str, float]:
    return in_own_process(["--models", model, "--arena", arena, "--steps", "2", "--one", budget, what])


@pytest.mark.parametrize(("model", "budget"), [("gpt", "0.25"), ("transformer", "0.5")])
def test_the_process_takes_what_the_plan_predicts(model: str, budget: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As users run it: without the settings of the tests.
    monkeypatch.delenv("ATEN_RECOMPUTE_ARENA_MIN_BYTES", raising=False)
    monkeypatch.delenv("ATEN_RECOMPUTE_ARENA_POISON", raising=False)
    rest = measure(model, budget, "rest")["rest"]
    kept = measure(model, budget, "peak")
    assert kept["peak"] - rest <= 1.05 * kept["predicted"]
    assert kept["faults"] < 100
    released = measure(model, budget, "peak", "release")
    assert released["peak"] - rest <= 1.05 * released["predicted"]
    assert released["after"] <= 1.05 * rest
