"""The peers of the benchmark train as eager does, and its fronts and tables have what was measured."""

import copy
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm import tqdm

from benchmarks import configurations, front, kernels, measure, models, peers, plots, run
from benchmarks.configurations import Configuration
from benchmarks.measure import Options, Result
from benchmarks.memory import Tracker

# ---- Peers -----------------------------------------------------------------------------------------------------------


def step_of(
    workload: models.Workload, module: torch.nn.Module, reseed: Callable[[], None]
) -> tuple[torch.Tensor, list[Any]]:
    """Returns the loss and the gradients of the parameters."""
    reseed()
    loss = workload.step(module)
    return loss, [parameter.grad for parameter in module.parameters()]


def assert_trains_as_eager(workload: models.Workload, peer: configurations.Compile, reseed: Callable[[], None]) -> None:
    expected_loss, expected = step_of(workload, copy.deepcopy(workload.module), reseed)
    loss, actual = step_of(workload, peer(copy.deepcopy(workload.module)), reseed)
    torch.testing.assert_close(loss, expected_loss)
    # A peer may rename and reorder parameters.
    torch.testing.assert_close(
        sorted(gradient.double().norm().item() for gradient in actual),
        sorted(gradient.double().norm().item() for gradient in expected),
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", models.NAMES)
@pytest.mark.parametrize("peer", peers.CHECKPOINTS)
def test_checkpoints_train_as_eager_does(name: str, peer: str, reseed: Callable[[], None]) -> None:
    assert_trains_as_eager(models.make(name, size="small"), peers.CHECKPOINTS[peer], reseed)


def test_checkpointed_bottlenecks_train_as_eager_does(reseed: Callable[[], None]) -> None:
    assert_trains_as_eager(models.make("densenet121", size="small"), peers.checkpoint_bottlenecks, reseed)


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_aot_does_not_draw_dropout_masks_again(budget: float, reseed: Callable[[], None]) -> None:
    assert_trains_as_eager(models.make("gpt", size="small"), peers.aot_min_cut(budget), reseed)


def test_aot_recomputes_batch_norm_and_updates_its_statistics_once(reseed: Callable[[], None]) -> None:
    workload = models.make("resnet50", size="small")
    eager = copy.deepcopy(workload.module)
    peer: Any = peers.aot_min_cut(0.25)(copy.deepcopy(workload.module))
    assert_trains_as_eager(workload, peers.aot_min_cut(0.25), reseed)

    workload.step(eager)
    workload.step(peer)
    buffers = dict(peer.orig_module.named_buffers())
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(buffers[name], buffer, msg=partial("{}: {}".format, name))


def test_a_checkpoint_lowers_the_peak(tracker: Tracker) -> None:
    workload = models.make("gpt", size="small")
    peaks = []
    for compile_module in (lambda module: module, peers.checkpoint_blocks):
        module = compile_module(copy.deepcopy(workload.module))
        with tracker.measure_peak() as peak:
            workload.step(module)
        peaks.append(peak.bytes)
    assert peaks[1] < 0.8 * peaks[0]


def test_the_gradient_check_finds_a_mask_that_was_drawn_twice() -> None:
    """A dropout whose backward draws a mask of its own has finite gradients, but wrong ones."""

    class Redrawn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * (torch.rand_like(x) < 0.5)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (torch.rand_like(gradient) < 0.5)

    class Net(torch.nn.Module):
        def __init__(self, redrawn: bool) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(32, 32)
            self.redrawn = redrawn

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.linear(x)
            x = Redrawn.apply(x) if self.redrawn else x * (torch.rand_like(x) < 0.5)
            return x.square().mean()

    right, wrong = (
        measure.check_gradient(models.Workload("net", net, (torch.randn(64, 32),)), net)
        for net in (Net(False), Net(True))
    )
    assert right == pytest.approx(1.0, abs=0.01)
    assert wrong is not None
    assert abs(wrong - 1.0) > measure.GRADIENT_TOLERANCE


# ---- Configurations --------------------------------------------------------------------------------------------------


def test_names_of_configurations_are_unique() -> None:
    for model in models.NAMES:
        names = [each.name for each in configurations.fixed(model)]
        assert len(names) == len(set(names))
    assert {"eager", "aot_0.25", "compile_0", "segments", "budgets"} <= set(configurations.selectable(models.NAMES))


def test_budgets_are_bytes_of_eagers_peak() -> None:
    assert [each.budget_bytes for each in configurations.sweep(1000.0, [1.0, 0.25])] == [1000, 250]


def test_nearly_equal_peaks_share_a_budget() -> None:
    budgets = [each.budget_bytes for each in configurations.partners([300_000_000, 100_000_000, 100_200_000])]
    assert budgets == [300_000_000, 100_000_000]


# ---- Measuring -------------------------------------------------------------------------------------------------------


def test_an_unreachable_budget_is_not_recorded_as_an_error() -> None:
    limited = Result("gpt", "budget_0.1", "ours", budget_bytes=100)
    text = (
        "The following operation failed in the TorchScript interpreter.\nTraceback\n"
        "the smallest reachable peak is 9 MiB"
    )
    measure.note(RuntimeError(text), limited)
    assert limited.unreachable == "the smallest reachable peak is 9 MiB"
    assert limited.error is None

    other = Result("gpt", "segments", "ours")
    measure.note(RuntimeError(text.replace("smallest reachable", "best")), other)
    assert other.unreachable is None
    assert other.error == "RuntimeError: the best peak is 9 MiB"


def test_keys_are_found_at_any_depth() -> None:
    assert list(measure.find_key({"a": [{"k": 1}, {"b": {"k": 2}}], "k": 3}, "k")) == [1, 2, 3]


def test_a_run_measures_peers_and_then_budgets_of_ours(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`segments` replaces ours with a budget, because only the budgets matter here."""

    def refuse(module: torch.nn.Module) -> torch.nn.Module:
        raise RuntimeError("not today")

    def budget(name: str, budget_bytes: int, said: Mapping[str, bool]) -> Configuration:
        options = {"strategy": "segments", **said}
        return Configuration(name, "ours", configurations.lowered(**options), budget_bytes)

    monkeypatch.setattr(configurations, "OURS", {})
    monkeypatch.setattr(configurations, "with_budget", budget)
    monkeypatch.setattr(
        configurations,
        "peers_of",
        lambda model, budgets: [
            Configuration("checkpoint", "peers", peers.checkpoint_blocks),
            Configuration("selective", "peers", refuse),
        ],
    )
    options = ["--models", "gpt", "--size", "small", "--repeats", "2", "--budgets", "0.5", "--out", str(tmp_path)]
    run.main([*options, "--only", "eager,peers,ours"])

    report = json.loads((tmp_path / "results.json").read_text())
    results = {each["configuration"]: each for each in report["results"]}
    assert list(results)[:4] == ["eager", "checkpoint", "selective", "budget_0.5"]
    assert len(results) == 5
    assert results["selective"]["error"] == "RuntimeError: not today"
    assert results["budget_0.5"]["budget_bytes"] == int(0.5 * results["eager"]["peak_bytes"])
    partner = list(results.values())[4]
    assert partner["budget_bytes"] == results["checkpoint"]["peak_bytes"]
    assert 0 < partner["peak_bytes"] < results["eager"]["peak_bytes"]
    assert partner["gradient_check"] == pytest.approx(1.0, abs=0.01)
    assert len(partner["steps_seconds"]) == 2
    assert {each["peer"] for each in report["front"]["comparisons"]} == {"eager", "checkpoint"}
    assert (tmp_path / "gpt.png").stat().st_size > 0


def test_only_selected_configurations_are_measured(tracker: Tracker) -> None:
    results = measure.run_model(
        "mlp", Options(only=["eager", "checkpoint_sqrt"], repeats=1, size="small"), tqdm(total=0, disable=True)
    )
    assert [each.configuration for each in results] == ["eager", "checkpoint_sqrt"]
    assert results[1].peak_ratio is not None
    assert math.isfinite(results[1].loss)


# ---- Fronts and tables -----------------------------------------------------------------------------------------------


def point(name: str, group: str, peak: float, seconds: float, **other: Any) -> Result:
    return Result("gpt", name, group, peak_bytes=peak * 2**20, step_seconds=seconds, **other)


POINTS = [
    point("eager", "eager", 100, 1.0),
    point("checkpoint", "peers", 40, 1.3),
    point("selective", "peers", 60, 1.4),
    point("compile_0.5", "peers", 50, 0.8),
    point("compile_0", "peers", 5, 0.5, wrong_gradients=True),
    point("aot_0", "peers", 1, 0.1, error="RuntimeError: no"),
    point("none", "ours", 90, 1.01),
    point("budget_0.4", "ours", 40, 1.2),
    point("budget_0.1", "ours", 10, 2.0),
]


def test_the_front_has_the_points_that_nothing_beats() -> None:
    usable = [each for each in POINTS if each.comparable]
    assert [each.configuration for each in front.pareto(usable)] == ["compile_0.5", "budget_0.4", "budget_0.1"]
    assert front.pareto([]) == []


def test_points_of_the_peers_are_matched_or_remain() -> None:
    comparisons = {each.peer: each for each in front.compare(POINTS)}
    # Configurations that failed or have wrong gradients are left out.
    assert list(comparisons) == ["eager", "checkpoint", "selective", "compile_0.5"]
    assert comparisons["eager"].matched_by == "none"  # one percent longer
    assert comparisons["checkpoint"].matched_by == "budget_0.4"
    assert comparisons["selective"].matched_by == "budget_0.4"
    assert not comparisons["selective"].on_peer_front
    left = comparisons["compile_0.5"]
    assert left.matched_by is None
    assert left.on_joint_front
    assert left.closest == "budget_0.4"
    assert left.closest_peak_ratio == pytest.approx(0.8)
    assert left.closest_time_ratio == pytest.approx(1.5)


def test_the_front_table_has_the_points_that_remain() -> None:
    text = front.format_front(front.compare(POINTS))
    assert "than 3 of 4 points of the peers" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("gpt")] == ["compile_0.5"]
    assert front.format_front(front.compare([each for each in POINTS if each.group != "ours"])) == ""


def test_a_slower_step_beyond_the_noise_does_not_match() -> None:
    peer = point("peer", "peers", 10, 1.0)
    assert front.matches(point("a", "ours", 10, 1.02), peer)
    assert not front.matches(point("b", "ours", 10, 1.03), peer)
    assert not front.matches(point("c", "ours", 10.001, 0.5), peer)


def test_the_table_marks_what_cannot_be_compared() -> None:
    limited = point("budget_0.1", "ours", 0, 0.0, unreachable="the smallest reachable peak is 9 MiB")
    planned = point("budget_0.5", "ours", 50, 1.0, predicted_peak_bytes=51 * 2**20, plan_seconds=0.25)
    lines = run.format_table([*POINTS[:6], limited, planned]).splitlines()
    assert lines[5].endswith("wrong gradients")
    assert lines[6].endswith("failed: RuntimeError: no")
    assert lines[7].endswith("unreachable: the smallest reachable peak is 9 MiB")
    assert lines[8].split()[-2:] == ["51.0", "0.25"]


def test_summaries_take_medians_and_compare_with_eager() -> None:
    eager = Result("gpt", "eager", "eager", gradient_check=0.98, peaks_bytes=[10, 10], steps_seconds=[1.0, 1.0])
    wrong = Result("gpt", "x", "peers", gradient_check=0.85, peaks_bytes=[5, 5], steps_seconds=[1.0, 2.0])
    measure.summarize([eager, wrong])
    assert (wrong.peak_ratio, wrong.time_ratio) == (0.5, 1.5)
    assert wrong.wrong_gradients
    assert not eager.wrong_gradients


def test_no_picture_is_written_without_a_point(tmp_path: Path) -> None:
    plots.plot_model([POINTS[4], POINTS[5]], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_accumulated_gradients_do_not_count_for_the_peak(tracker: Tracker) -> None:
    """Each step begins with the gradients of the step before, set to zero, which are not part of the peak."""
    workload = models.make("mlp", size="small")
    peaks = {}
    for accumulate in (False, True):
        contender = measure.Contender(workload, configurations.baselines()[0], measure.Options(accumulate=accumulate))
        contender.attempt(contender.warm_up)
        for repetition in range(2):
            contender.attempt(partial(contender.measure, repetition))
        assert contender.result.error is None
        peaks[accumulate] = contender.result.peaks_bytes
    gradients = sum(parameter.nbytes for parameter in workload.module.parameters())
    assert min(peaks[False]) > max(peaks[True])
    assert min(peaks[False]) - max(peaks[True]) <= gradients


# ---- Times of kernels ------------------------------------------------------------------------------------------------


def test_products_are_distinguished_from_other_operators() -> None:
    matrix = torch.ones(64, 64)
    library, rest = kernels.split(lambda: torch.relu(matrix))
    assert library == 0.0
    assert rest > 0.0
    library, _ = kernels.split(lambda: matrix @ matrix)
    assert library > 0.0


def test_times_are_split_for_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(kernels.WAYS, "torch.compile")  # takes half a minute
    found = kernels.measure("unet", size="small", repeats=1)
    assert list(found) == ["eager", "none"]
    assert all(library > 0.0 and rest > 0.0 for library, rest in found.values())
