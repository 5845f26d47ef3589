"""Strategy ``budget``: the measured peak stays within the budget and equals the predicted one."""

import copy
import functools
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import aten_recompute
from benchmarks import models
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy, num_regions, only_variant, step
from support.nets import ConvNet, Residual, Tied, TwoOutputs

MODELS = ["gpt", "resnet50", "mlp", "transformer", "unet"]
# Budgets between the smallest peak that can be reached (0) and that without recomputation (1).
PLACES = [0.1, 0.3, 0.6, 0.9]
# The loss outside of the region, its gradient and the divisor of both: scalars of 4 bytes.
OUTSIDE_BYTES = 12


def with_budget(workload: models.Workload, **options: Any) -> torch.jit.ScriptModule:
    """Lowers and compiles the module. With costs of the FLOP model, the plan is the same in every run."""
    options.setdefault("release_outputs", workload.release_outputs)
    lowered = lowered_copy(workload.module, "budget", cost_model="flops", **options)
    workload.step(lowered)
    return lowered


def refusal(workload: models.Workload, **options: Any) -> str:
    """Returns the error message of a budget that cannot be kept."""
    with pytest.raises(RuntimeError, match=r"aten_recompute: .*_budget: ") as raised:
        with_budget(workload, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@functools.cache
def range_of_peaks(name: str, accumulate: bool) -> tuple[int, int]:
    """Returns the smallest peak that an error message names, and the peak without recomputation, in bytes."""
    workload = models.make(name, size="small")
    message = refusal(workload, memory_budget=1e-6, accumulate=accumulate)
    share = re.search(r"reached is [\d.]+ [KM]iB \(([\d.]+) of", message)
    assert share is not None
    unplanned = only_variant(with_budget(workload, memory_budget=1.0, accumulate=accumulate))
    largest = unplanned["unplanned_peak_bytes"]
    return int(float(share.group(1)) * largest), largest


def budget_at(name: str, place: float, accumulate: bool) -> int:
    smallest, largest = range_of_peaks(name, accumulate)
    return int(smallest + place * (largest - smallest))


def peak_bytes(workload: models.Workload, module: torch.jit.ScriptModule, accumulate: bool, tracker: Tracker) -> int:
    """Returns the peak of one step. Gradients exist before it if they are accumulated."""
    workload.step(module)
    if not accumulate:
        module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        workload.loss(module).backward()
    return peak.bytes


@pytest.mark.parametrize("accumulate", [False, True], ids=["new_gradients", "accumulate"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MODELS)
def test_the_measured_peak_keeps_the_budget(name: str, place: float, accumulate: bool, tracker: Tracker) -> None:
    workload = models.make(name, size="small")
    budget = budget_at(name, place, accumulate)
    lowered = with_budget(workload, memory_budget=budget, accumulate=accumulate)
    peak = peak_bytes(workload, lowered, accumulate, tracker)
    predicted = only_variant(lowered)["predicted_peak_bytes"]
    assert predicted <= budget
    assert peak <= budget + OUTSIDE_BYTES
    assert abs(predicted - peak) <= 0.03 * peak
    assert only_variant(lowered)["unplanned_peak_bytes"] > budget, "the budget requires no plan"


@pytest.mark.parametrize("strategy", ["none", "all", "budget"])
def test_the_prediction_depends_on_whether_outputs_are_released(strategy: str, tracker: Tracker) -> None:
    """A cross entropy keeps the logarithms of the probabilities until its backward, but not the logits."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1 << 13))
    inputs, targets = torch.rand(64, 8), torch.randint(1 << 13, (64,))
    options: dict[str, Any] = {"profile": True, "accumulate": True}
    if strategy == "budget":
        options.update(memory_budget=1.0, cost_model="flops")
    predicted = {}
    for release in (False, True):
        lowered = lowered_copy(network, strategy, release_outputs=release, **options)
        for keep in (not release, not release):
            lowered.zero_grad(set_to_none=False)
            with tracker.measure_peak() as peak:
                logits = lowered(inputs)
                loss = torch.nn.functional.cross_entropy(logits, targets)
                if not keep:
                    del logits
                loss.backward()
            logits = loss = None  # type: ignore[assignment]
        predicted[release] = only_variant(lowered)["predicted_peak_bytes"]
        assert abs(predicted[release] - peak.bytes) <= 0.03 * peak.bytes
    assert predicted[False] - predicted[True] == 64 * (1 << 13) * 4


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
@pytest.mark.parametrize("name", MODELS)
def test_profile_predicts_the_peak_of_other_strategies(name: str, strategy: str, tracker: Tracker) -> None:
    workload = models.make(name, size="small")
    lowered = lowered_copy(workload.module, strategy, profile=True, release_outputs=workload.release_outputs)
    peak = peak_bytes(workload, lowered, False, tracker)
    assert abs(only_variant(lowered)["predicted_peak_bytes"] - peak) <= 0.03 * peak


@pytest.mark.parametrize("place", [0.05, 0.4, 0.8])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_benchmark_models_equal_eager(name: str, place: float) -> None:
    """Dropout is in gpt and transformer, and running statistics are in resnet50."""
    workload = models.make(name, size="small")
    eager = workload.module
    budget = budget_at(name, place, False)
    lowered = lowered_copy(
        eager, "budget", cost_model="flops", memory_budget=budget, release_outputs=workload.release_outputs
    )
    for seed in (1, 2):  # the second call runs the compiled programs again
        torch.manual_seed(seed)
        eager_loss = workload.step(eager)
        eager_random = torch.get_rng_state()
        torch.manual_seed(seed)
        loss = workload.step(lowered)
        assert torch.equal(loss, eager_loss)
        assert torch.equal(torch.get_rng_state(), eager_random)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        assert_same(list(lowered.buffers()), list(eager.buffers()))
    assert num_regions(lowered) == [1]
    assert only_variant(lowered)["unplanned_peak_bytes"] > budget


@pytest.mark.parametrize("place", [0.02, 0.5])
@pytest.mark.parametrize(
    ("net", "inputs"),
    [
        (Residual(dropout=0.3), (torch.rand(64, 16),)),
        (ConvNet(), (torch.rand(4, 3, 8, 8),)),
        (Tied(), (torch.randint(11, (30, 5)),)),
        (TwoOutputs(), (torch.rand(40, 6),)),
    ],
    ids=["residual", "convnet", "tied", "two_outputs"],
)
def test_gradients_of_small_nets_equal_eager(
    net: torch.nn.Module, inputs: tuple[torch.Tensor, ...], place: float
) -> None:
    refused = lowered_copy(net, "budget", cost_model="flops", memory_budget=1e-6)
    with pytest.raises(RuntimeError, match="smallest that can be reached") as raised:
        refused(*inputs)
    share = re.search(r"reached is [\d.]+ [KM]iB \(([\d.]+) of", str(raised.value))
    assert share is not None
    smallest = min(1.0, 1.006 * float(share.group(1)))
    eager = copy.deepcopy(net)
    lowered = lowered_copy(net, "budget", cost_model="flops", memory_budget=smallest + place * (1.0 - smallest))
    for seed in (1, 2):
        expected = step(eager, list(eager.parameters()), inputs, seed)
        result = step(lowered, list(lowered.parameters()), inputs, seed)
        assert_same(result[0], expected[0])
        assert_same(result[1], expected[1])
        assert_same(list(lowered.buffers()), list(eager.buffers()))


def test_accumulated_gradients_equal_eager() -> None:
    workload = models.make("gpt", size="small")
    eager = workload.module
    budget = budget_at("gpt", 0.2, True)
    lowered = lowered_copy(eager, "budget", cost_model="flops", memory_budget=budget, accumulate=True)
    for module in (eager, lowered):
        torch.manual_seed(3)
        workload.step(module)
        workload.loss(module).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


def test_measured_costs_give_the_same_gradients(tracker: Tracker) -> None:
    """Measured seconds only decide which plan is used."""
    workload = models.make("gpt", size="small")
    eager = workload.module
    budget = budget_at("gpt", 0.3, False)
    lowered = lowered_copy(eager, "budget", memory_budget=budget)
    for module in (eager, lowered):
        torch.manual_seed(1)
        workload.step(module)
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert peak_bytes(workload, lowered, False, tracker) <= budget + OUTSIDE_BYTES


@pytest.mark.parametrize("name", MODELS)
def test_an_unreachable_budget_names_the_smallest(name: str) -> None:
    workload = models.make(name, size="small")
    smallest, largest = range_of_peaks(name, False)
    message = refusal(workload, memory_budget="1000")
    assert "memory_budget: the peak cannot be kept under 1000 B; the smallest that can be reached is" in message
    whole = re.search(r"of ([\d.]+) ([KM])iB, the peak without recomputation\)", message)
    assert whole is not None
    unit = {"K": 2**10, "M": 2**20}[whole.group(2)]
    assert abs(float(whole.group(1)) * unit - largest) <= 0.0501 * unit, "one digit is given after the point"
    # The budgets that messages name can be kept as they stand there, and 2 % less cannot.
    named = re.search(r"reached is ([\d.]+ [KM]iB) \(([\d.]+) of", refusal(workload, memory_budget=0.01))
    assert named is not None
    for budget in (named.group(1), named.group(1).replace(" ", ""), float(named.group(2))):
        with_budget(workload, memory_budget=budget)
    predicted = only_variant(with_budget(workload, memory_budget=smallest))["predicted_peak_bytes"]
    assert predicted <= smallest
    assert "smallest that can be reached" in refusal(workload, memory_budget=int(0.98 * smallest))


def test_what_an_error_names_can_be_kept_whatever_is_measured() -> None:
    workload = models.make("transformer", size="small")
    with pytest.raises(RuntimeError, match="the smallest that can be reached") as raised:
        workload.step(lowered_copy(workload.module, "budget", memory_budget=0.01))
    named = re.search(r"reached is ([\d.]+ [KM]iB) \(([\d.]+) of", str(raised.value))
    assert named is not None
    for budget in (named.group(1), float(named.group(2))):
        workload.step(lowered_copy(workload.module, "budget", memory_budget=budget))


def test_a_fraction_may_count_from_the_largest_inputs(capfd: pytest.CaptureFixture[str]) -> None:
    """With one sample, parameter gradients take most of the peak, so that hardly anything can be saved."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())])
    small, large = torch.randn(1, 64), torch.randn(2048, 64)

    def lowered(**options: Any) -> torch.jit.ScriptModule:
        return lowered_copy(net, "budget", memory_budget=0.6, cost_model="flops", **options)

    with pytest.raises(RuntimeError, match=r'with the inputs of this call.*give bytes, or set "of": "largest"'):
        lowered()(small).sum().backward()
    first = lowered(of="largest")
    assert aten_recompute.report(first)["methods"][0]["options"]["of"] == "largest"
    for x in (small, large, small, large):
        first(x).sum().backward()
    assert capfd.readouterr().err.count("a plan near that runs instead") == 1
    variants = aten_recompute.report(first)["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    largest = max(variants, key=lambda variant: variant["unplanned_peak_bytes"])
    assert largest["predicted_peak_bytes"] <= 0.6 * largest["unplanned_peak_bytes"]


def test_a_lean_plan_takes_no_more_than_its_time(capfd: pytest.CaptureFixture[str]) -> None:
    workload = models.make("gpt", size="small")
    options: dict[str, Any] = {"memory_budget": 1e-6, "unreachable": "leanest", "accumulate": True}
    peaks = []
    for times in (1.0, 1.1, 1.5):
        figures = only_variant(with_budget(workload, leanest_time=times, **options))
        assert figures["predicted_seconds"] <= times * figures["unplanned_seconds"] * (1 + 1e-9)
        peaks.append(figures["predicted_peak_bytes"])
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]
    assert re.search(r"its peak of [\d.]+ [KM]iB takes [\d.]+ times .* the next smaller one of", capfd.readouterr().err)


def test_a_refused_budget_raises_at_each_call_that_needs_gradients() -> None:
    """Without gradients nothing is planned, so such calls work."""
    workload = models.make("mlp", size="small")
    lowered = lowered_copy(workload.module, "budget", cost_model="flops", memory_budget=1e-6)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="smallest that can be reached"):
            workload.step(lowered)
    with torch.no_grad():
        assert torch.equal(lowered(*workload.inputs), workload.module(*workload.inputs))


@pytest.mark.parametrize("accumulate", [False, True], ids=["new_gradients", "accumulate"])
@pytest.mark.parametrize("name", ["gpt", "mlp", "transformer"])
def test_predicted_time_never_rises_with_the_budget(name: str, accumulate: bool) -> None:
    workload = models.make(name, size="small")
    times: list[float] = []
    for place in [i / 8 for i in range(9)]:
        budget = budget_at(name, place, accumulate)
        figures = only_variant(with_budget(workload, memory_budget=budget, accumulate=accumulate))
        assert figures["predicted_peak_bytes"] <= budget
        times.append(figures["predicted_seconds"] / figures["unplanned_seconds"])
    # Plans of equal time may add up the times of their nodes in another order.
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(times)), times
    assert times[-1] == 1.0
    assert times[0] > 1.0


@pytest.mark.parametrize("name", MODELS)
def test_a_time_budget_is_kept_and_buys_memory(name: str, tracker: Tracker) -> None:
    workload = models.make(name, size="small")
    peaks: list[int] = []
    for times in (1.0, 1.05, 1.1, 1.2, 1.5):
        lowered = with_budget(workload, time_budget=times, accumulate=True)
        figures = only_variant(lowered)
        assert figures["predicted_seconds"] <= times * figures["unplanned_seconds"] * (1 + 1e-9)
        peaks.append(figures["predicted_peak_bytes"])
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] == figures["unplanned_peak_bytes"]
    assert peaks[-1] < peaks[0]
    # The peak of the last plan is predicted as well as if it had been the budget.
    peak = peak_bytes(workload, lowered, True, tracker)
    assert abs(peaks[-1] - peak) <= 0.03 * peak


def test_a_time_budget_and_a_memory_budget_can_be_combined() -> None:
    workload = models.make("gpt", size="small")
    budget = budget_at("gpt", 0.3, True)
    alone = only_variant(with_budget(workload, memory_budget=budget, accumulate=True))
    times = alone["predicted_seconds"] / alone["unplanned_seconds"]
    assert times > 1.01
    both = with_budget(workload, memory_budget=budget, time_budget=1.01 * times, accumulate=True)
    assert only_variant(both)["predicted_peak_bytes"] <= budget
    message = refusal(workload, memory_budget=budget, time_budget=1.001, accumulate=True)
    assert "no plan keeps both" in message


def test_the_same_problem_gets_the_same_plan() -> None:
    workload = models.make("transformer", size="small")
    budget = budget_at("transformer", 0.3, False)
    plans = [only_variant(with_budget(workload, memory_budget=budget)) for _ in range(2)]
    for key in ("saved", "recomputed", "predicted_peak_bytes", "predicted_seconds"):
        assert plans[0][key] == plans[1][key]


@pytest.mark.lowered_only
def test_a_saved_module_keeps_its_budget(tmp_path: Path, tracker: Tracker) -> None:
    workload = models.make("gpt", size="small")
    budget = budget_at("gpt", 0.3, False)
    lowered = lowered_copy(workload.module, "budget", cost_model="flops", memory_budget=budget)
    lowered.save(str(tmp_path / "gpt.pt"))
    loaded = aten_recompute.load(str(tmp_path / "gpt.pt"))
    assert peak_bytes(workload, loaded, False, tracker) <= budget + OUTSIDE_BYTES
    assert only_variant(loaded)["recomputed"]
