"""With ``on_oom="retry_leaner"``, a call that runs out of memory is made again under leaner plans."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy

ROWS = 128


class Net(nn.Module):
    """Draws random numbers, updates running statistics, and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(6)])
        self.norm = nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.dropout(torch.tanh(layer(x))) + x
        return self.norm(x).square().mean()


class Counting(nn.Module):
    """Counts its calls before anything else, and keeps its control flow."""

    calls: int

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.net(x)


class TwoRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Net(), Net()

    def forward(self, x: Tensor) -> Tensor:
        loss = self.first(x)
        print("between")
        return loss + self.second(x * 2)


def retrying_copy(eager: nn.Module, **options: Any) -> Any:
    spec = {"memory_budget": 0.9, "cost_model": "flops", "unreachable": "leanest", "on_oom": "retry_leaner"}
    return lowered_copy(eager, "budget", **{**spec, **options})


def step(module: Any, number: int) -> list[Tensor | None]:
    torch.manual_seed(number)
    x = torch.randn(ROWS, 32)
    module.zero_grad(set_to_none=True)
    loss = module(x)
    loss.backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    return [loss.detach(), *gradients, *(buffer.clone() for buffer in module.buffers()), torch.get_rng_state()]


def leaner_budget(module: Any) -> int | None:
    (method,) = aten_recompute.report(module)["methods"]
    return method.get("leaner_budget_bytes")


def predicted(module: Any) -> int:
    (method,) = aten_recompute.report(module)["methods"]
    variants = method["specialisations"][-1]["regions"][0]["variants"]
    return int(variants[-1]["predicted_peak_bytes"])


def requests_of_forward(module: Any, tracker: Tracker, number: int) -> int:
    torch.manual_seed(number)
    x = torch.randn(ROWS, 32)
    tracker.fail(0)
    with torch.no_grad():
        before = [buffer.clone() for buffer in module.buffers()]
    module(x)
    count = tracker.requests
    with torch.no_grad():
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)
    return count


@pytest.mark.parametrize("share", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("kind", [Net, Counting, TwoRegions])
def test_a_call_that_runs_out_of_memory_is_repeated(kind: type[nn.Module], share: float, tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = kind()
    module = retrying_copy(eager)
    for number in range(3):
        assert_same(step(module, number), step(eager, number))
    count = requests_of_forward(module, tracker, 3)
    torch.manual_seed(3)
    x = torch.randn(ROWS, 32)
    module.zero_grad(set_to_none=True)
    tracker.fail(1 + int(share * (count - 1)))
    try:
        loss = module(x)
    finally:
        tracker.fail(0)
    loss.backward()
    ours = [loss.detach(), *(p.grad for p in module.parameters()), *(b.clone() for b in module.buffers())]
    assert_same([*ours, torch.get_rng_state()], step(eager, 3))
    assert leaner_budget(module) is not None
    for number in range(4, 7):
        assert_same(step(module, number), step(eager, number))
    if kind is Counting:
        assert module.calls == eager.calls + 1  # of the call that counted the requests


def test_a_backward_that_runs_out_of_memory_raises_and_later_steps_are_leaner(tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = Net()
    module = retrying_copy(eager)
    peaks = []
    for number in range(12):
        assert_same(step(module, number), step(eager, number))
        peaks.append(predicted(module))
        loss = module(torch.randn(ROWS, 32))
        eager(torch.randn(ROWS, 32))  # running statistics count that call, too
        with torch.no_grad():
            for ours, theirs in zip(module.buffers(), eager.buffers(), strict=True):
                ours.copy_(theirs)
        tracker.fail(3)
        try:
            with pytest.raises(RuntimeError, match="can't allocate memory"):
                loss.backward()
        finally:
            tracker.fail(0)
        del loss
    # Down to the smallest, where plans stay.
    assert all(later <= earlier for earlier, later in itertools.pairwise(peaks))
    assert peaks[-1] < 0.7 * peaks[0]
    assert peaks[-1] == peaks[-2]
    budget = leaner_budget(module)
    assert budget is not None
    assert budget < peaks[0]


def test_without_the_option_nothing_is_repeated(tracker: Tracker) -> None:
    torch.manual_seed(0)
    module = retrying_copy(Net(), on_oom="raise")
    step(module, 0)
    peak = predicted(module)
    tracker.fail(3)
    try:
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            module(torch.randn(ROWS, 32))
    finally:
        tracker.fail(0)
    step(module, 1)
    assert predicted(module) == peak
    assert leaner_budget(module) is None


def test_other_errors_are_raised_at_once() -> None:
    module = retrying_copy(Net())
    step(module, 0)
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied|size"):
        module(torch.randn(ROWS, 31))
    assert leaner_budget(module) is None


def test_the_report_tells_of_it(tracker: Tracker) -> None:
    module = retrying_copy(Net())
    step(module, 0)
    tracker.fail(12)
    try:
        module(torch.randn(ROWS, 32))
    finally:
        tracker.fail(0)
    assert "out of memory" in str(aten_recompute.report(module))
