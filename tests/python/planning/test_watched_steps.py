"""A step under a budget is watched, and plans are corrected by the memory that it needs outside of regions."""

import threading

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import lowered_copy, only_variant


@torch.jit.ignore
def in_python(x: Tensor) -> Tensor:
    """TorchScript calls it, so it runs under ordinary autograd."""
    x = torch.cat([x, x], dim=2)
    for _ in range(8):
        x = torch.tanh(torch.sin(x))
    return x


class Interrupted(nn.Module):
    """Calls Python between two regions, which keeps most of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.after = nn.ModuleList([nn.Linear(128, 128) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.before:
            x = torch.tanh(layer(x)) * 1.1
        x = in_python(x)
        for layer in self.after:
            x = torch.tanh(layer(x)) * 1.1
        return x.pow(2).mean()


def test_memory_of_operators_between_regions_is_learnt_in_the_first_step(
    tracker: Tracker, capfd: pytest.CaptureFixture[str]
) -> None:
    lowered = lowered_copy(Interrupted(), "budget", memory_budget=0.95)
    x = torch.randn(16, 100, 64)
    for step in range(4):
        for parameter in lowered.parameters():
            parameter.grad = None
        with tracker.measure_peak() as peak:
            lowered(x).backward()
        plan = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["plans"][-1]
        assert step == 0 or peak.bytes <= 0.95 * plan["unplanned_peak_bytes"]
    assert plan["outside_bytes"] > 0
    assert plan["measured_saved_bytes"] == pytest.approx(plan["predicted_saved_bytes"], rel=0.01)
    assert plan["measured_peak_bytes"] == pytest.approx(peak.bytes, rel=0.01)
    assert plan["predicted_peak_bytes"] == pytest.approx(peak.bytes, rel=0.03)
    assert capfd.readouterr().err == ""


def test_a_budget_that_operators_between_regions_exceed_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    lowered = lowered_copy(Interrupted(), "budget", memory_budget=0.4)
    with pytest.raises(RuntimeError, match=r"as operators between the regions need [0-9.]+ MiB"):
        lowered(torch.randn(16, 100, 64))
    leanest = lowered_copy(Interrupted(), "budget", memory_budget=0.4, unreachable="leanest")
    leanest(torch.randn(16, 100, 64)).backward()
    assert "a plan near that runs instead" in capfd.readouterr().err


def test_a_profiler_may_begin_while_a_step_is_watched() -> None:
    lowered = lowered_copy(Interrupted(), "budget", memory_budget=0.95)
    x = torch.randn(4, 20, 64)
    for _ in range(3):
        loss = lowered(x)
        with torch.profiler.profile(profile_memory=True) as profile:
            loss.backward()
            lowered(x).backward()
        assert any("aten::mm" in event.key or "aten::addmm" in event.key for event in profile.key_averages())


def test_steps_of_several_threads_are_watched_one_at_a_time() -> None:
    x = torch.randn(4, 20, 64)
    errors: list[BaseException] = []

    def train() -> None:
        try:
            lowered = lowered_copy(Interrupted(), "budget", memory_budget=0.95)
            for _ in range(4):
                lowered(x).backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    # The backward may run on another thread than the call.
    lowered = lowered_copy(Interrupted(), "budget", memory_budget=0.95)
    for _ in range(3):
        loss = lowered(x)
        backward = threading.Thread(target=loss.backward)
        backward.start()
        backward.join()
    assert lowered.before[0].weight.grad is not None


class Unfinished(nn.Module):
    """The first region has no part in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = nn.Linear(8, 8)
        self.read = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(self.unread(x))
        if bool(x.sum() > 1e9):
            x = torch.relu(x)
        return torch.tanh(self.read(x)).sum(), y


@pytest.mark.parametrize("backward", [True, False])
def test_nothing_is_watched_once_the_step_has_ended(backward: bool, tracker: Tracker) -> None:
    lowered = lowered_copy(Unfinished(), "budget", memory_budget=1.0)
    for _ in range(3):
        with tracker.measure_peak():  # raises if another allocator is installed
            loss = lowered(torch.randn(2, 8))[0]
            if backward:
                loss.backward()
            del loss


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3 if i == 0 else 16, 16, 3, padding=1) for i in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.square().mean()


def test_smaller_inputs_are_not_compared_with_the_plan_of_larger_ones(capfd: pytest.CaptureFixture[str]) -> None:
    lowered = lowered_copy(Convolutions(), "budget", memory_budget=0.6, cost_model="flops", unreachable="leanest")

    def step(edge: int, gradients_exist: bool) -> int | None:
        for parameter in lowered.parameters():
            parameter.grad = torch.zeros_like(parameter) if gradients_exist else None
        lowered(torch.randn(4, 3, edge, edge)).backward()
        measured: int | None = only_variant(lowered).get("measured_peak_bytes")
        return measured

    # With gradients that exist already, steps are not as the plan assumes, so it is not compared with them.
    assert [step(64, True), step(64, True)] == [None, None]
    assert [step(32, False) for _ in range(6)] == [None] * 6
    assert step(64, False) == pytest.approx(only_variant(lowered)["predicted_peak_bytes"], rel=0.01)
    assert capfd.readouterr().err == ""


class Selected(nn.Module):
    """Data decide how many rows there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        x = x[x[:, 0] > 0]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()


def test_fewer_rows_are_not_compared_with_the_plan_of_more(capfd: pytest.CaptureFixture[str]) -> None:
    lowered = lowered_copy(Selected(), "budget", memory_budget=0.8, cost_model="flops", unreachable="leanest")

    def step(rows: int, gradients_exist: bool) -> int | None:
        for parameter in lowered.parameters():
            parameter.grad = torch.zeros_like(parameter) if gradients_exist else None
        x = torch.randn(1024, 64)
        x[:, 0] = (torch.arange(1024) < rows).float() - 0.5
        lowered(x).backward()
        measured: int | None = only_variant(lowered).get("measured_peak_bytes")
        return measured

    assert [step(1000, True), step(1000, True), step(400, False), step(400, False)] == [None] * 4
    assert step(1000, False) == pytest.approx(only_variant(lowered)["predicted_peak_bytes"], rel=0.03)
    assert "peak of a step was" not in capfd.readouterr().err


def test_a_first_step_that_exceeds_the_budget_says_so_once(tracker: Tracker, capfd: pytest.CaptureFixture[str]) -> None:
    """What the loss needs is seen in the same step as that the caller holds no output, which needs another plan."""
    torch.manual_seed(0)
    net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())], nn.Linear(32, 128))
    x = torch.randn(2048, 32)
    budget = int(4.4 * 2**20)
    lowered = lowered_copy(net, "budget", memory_budget=budget, cost_model="flops")
    peaks = []
    for _ in range(4):
        lowered.zero_grad()
        with tracker.measure_peak() as peak:
            lowered(x).log_softmax(-1).abs().mean().backward()
        peaks.append(peak.bytes)
    assert peaks[0] > 1.05 * budget
    assert max(peaks[1:]) <= 1.001 * budget
    log = capfd.readouterr().err
    assert log.count("the peak of a step was") == 1, log
    assert "more was in use than the outputs and their gradients" in log
