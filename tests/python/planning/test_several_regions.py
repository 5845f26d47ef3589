"""Graph breaks divide a method into regions that share one budget, which the peak of the method keeps."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute._report import MethodPlan, Variant
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy

# The loss outside of the method consists of scalars.
OUTSIDE_BYTES = 16


class Mlp(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(torch.sigmoid(layer(x)))
        return x


class Broken(nn.Module):
    """Has a branch on data in the middle, hence a region before it, one in each branch, and one after it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 4)
        self.b = Mlp(width, 1)
        self.c = Mlp(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        if bool(x.sum() > 0):
            x = self.b(x)
        else:
            x = torch.cos(x)
        return self.c(x).sum()


class Printing(nn.Module):
    """Has a break that uses no value, and a value that is read on both sides of it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 3)
        self.b = Mlp(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        z = self.b(y)
        print("between")
        return (self.b(z) * y).sum()


class Looping(nn.Module):
    """Runs one region several times in a loop."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 3)
        self.times = 3

    def forward(self, x: Tensor) -> Tensor:
        i = 0
        while i < self.times and bool(x.sum() < 1e9):
            x = self.a(x)
            i += 1
        return x.sum()


class Viewing(nn.Module):
    """A view and a value that is made between the regions pass the break."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a = Mlp(width, 4)
        self.b = Mlp(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x) * 2.0
        seen: list[Tensor] = []
        if bool(h.sum() > 1e9):
            seen.append(h)
        h = h.view(-1, h.size(1))
        h[0] = 0.0
        return self.b(h).sum() + float(len(seen))


NETS = [Broken, Printing, Looping, Viewing]


def with_budget(net: nn.Module, **options: Any) -> torch.jit.ScriptModule:
    return lowered_copy(net, "budget", cost_model="flops", **options)


def step(module: nn.Module, x: Tensor) -> Tensor:
    module.zero_grad(set_to_none=True)
    loss = module(x)
    loss.backward()
    return loss.detach()


def peak_bytes(module: nn.Module, x: Tensor, tracker: Tracker, accumulate: bool = False) -> int:
    """Returns the peak of the second step with these inputs, above the memory in use before it."""
    step(module, x)
    if not accumulate:
        module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        module(x).backward()
    return peak.bytes


def plans(lowered: torch.jit.ScriptModule) -> list[MethodPlan]:
    (specialisation,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    return specialisation["plans"]


def rows(count: int = 2048, width: int = 16) -> Tensor:
    return torch.randn(count, width)


def variants(lowered: torch.jit.ScriptModule) -> list[Variant]:
    (specialisation,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    return [variant for region in specialisation["regions"] for variant in region["variants"]]


def unplanned_peak(make: Callable[[], nn.Module], x: Tensor, tracker: Tracker) -> int:
    return peak_bytes(lowered_copy(make(), "none"), x, tracker)


@pytest.mark.parametrize("accumulate", [False, True], ids=["new_gradients", "accumulate"])
@pytest.mark.parametrize("share", [0.7, 0.5])
@pytest.mark.parametrize("make", NETS)
def test_the_peak_of_the_method_keeps_the_budget(
    make: Callable[[], nn.Module], share: float, accumulate: bool, tracker: Tracker
) -> None:
    x = rows()
    budget = int(share * unplanned_peak(make, x, tracker))
    lowered = with_budget(make(), memory_budget=budget, accumulate=accumulate)
    peak = peak_bytes(lowered, x, tracker, accumulate)
    (plan,) = plans(lowered)
    assert plan["predicted_peak_bytes"] <= budget
    assert peak <= budget + OUTSIDE_BYTES
    assert abs(plan["predicted_peak_bytes"] - peak) <= 0.03 * peak
    if make is Broken and share == 0.7:  # each region alone would have kept everything
        assert max(variant["unplanned_peak_bytes"] for variant in variants(lowered)) <= budget
    assert peak > 0.5 * budget, "the plan is leaner than necessary"


class AsksForSizes(nn.Module):
    """A layer with a branch on a size, which only a call can decide, between any two of its operators."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        if y.size(0) > 1:
            y = self.up(y)
        else:
            y = torch.cat([y, y], -1)
        y = torch.nn.functional.gelu(y) if y.size(1) > 1 else y.tanh()
        y = torch.nn.functional.dropout(y, 0.1)
        if y.size(1) > 2:
            y = y.sigmoid() * y
        return x + self.down(y)


class ManyRegions(nn.Module):
    """Has many regions, copies and views between them, and residual connections over several of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([AsksForSizes() for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return (x * x).sum()


@pytest.mark.parametrize("share", [1.0, 0.85])
def test_a_method_of_many_regions_keeps_the_budget_and_equals_eager(share: float, tracker: Tracker) -> None:
    x = torch.randn(8, 32, 32)
    eager = ManyRegions()
    unplanned = peak_bytes(lowered_copy(eager, "none"), x, tracker)
    lowered = with_budget(eager, memory_budget=int(share * unplanned) + OUTSIDE_BYTES)
    peak = peak_bytes(lowered, x, tracker)
    (plan,) = plans(lowered)
    assert len(variants(lowered)) > 5
    assert abs(plan["predicted_peak_bytes"] - peak) <= 0.03 * peak
    assert abs(plan["unplanned_peak_bytes"] - unplanned) <= 0.03 * unplanned
    assert peak <= share * unplanned + 2 * OUTSIDE_BYTES
    for seed in (1, 2):
        torch.manual_seed(seed)
        loss = step(eager, x)
        torch.manual_seed(seed)
        assert torch.equal(step(lowered, x), loss)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


@pytest.mark.parametrize("make", NETS)
def test_nothing_is_recomputed_if_the_budget_allows_everything(make: Callable[[], nn.Module], tracker: Tracker) -> None:
    x = rows()
    unplanned = unplanned_peak(make, x, tracker)
    lowered = with_budget(make(), memory_budget=1.0)
    peak = peak_bytes(lowered, x, tracker)
    (plan,) = plans(lowered)
    assert abs(peak - unplanned) <= OUTSIDE_BYTES
    assert abs(plan["unplanned_peak_bytes"] - unplanned) <= OUTSIDE_BYTES
    assert not any(variant["recomputed"] for variant in variants(lowered))


@pytest.mark.parametrize("share", [0.9, 0.6])
@pytest.mark.parametrize("make", NETS)
def test_gradients_equal_eager(make: Callable[[], nn.Module], share: float) -> None:
    """The first call recomputes as much as it can; later calls follow the plan for all regions."""
    eager = make()
    lowered = with_budget(eager, memory_budget=share)
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        x = rows(64)
        assert torch.equal(step(lowered, x), step(eager, x))
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert any(variant["recomputed"] for variant in variants(lowered))


class Dropping(nn.Module):
    """Has random numbers, running statistics and two outputs, one of which a later region reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Mlp(16, 2)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.3)
        self.b = Mlp(16, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.drop(self.norm(self.a(x)))
        print("between")
        return h, self.b(self.drop(h))


def test_random_numbers_and_statistics_equal_eager(tracker: Tracker) -> None:
    eager = Dropping()
    lowered = with_budget(eager, memory_budget=0.7)
    x = rows(512)

    def run(module: nn.Module, seed: int) -> list[Tensor]:
        module.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        first, second = module(x)
        ((first * first).sum() + second.sum()).backward()
        return [first.detach(), second.detach(), torch.get_rng_state()]

    for seed in (1, 2):
        assert_same(run(lowered, seed), run(eager, seed))
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        assert_same(list(lowered.buffers()), list(eager.buffers()))
    (plan,) = plans(lowered)
    assert plan["predicted_peak_bytes"] <= 0.7 * plan["unplanned_peak_bytes"]


def test_calls_that_began_before_the_plan_was_made_equal_eager() -> None:
    eager = Broken()
    lowered = with_budget(eager, memory_budget=0.6)
    x, y = rows(64), rows(64)
    first = lowered(x)  # recomputes as much as it can; the plan for all regions is made at its end
    second = lowered(y)
    for loss, inputs in ((first, x), (second, y)):
        lowered.zero_grad(set_to_none=True)
        loss.backward()
        step(eager, inputs)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


def test_an_unreachable_budget_names_the_smallest() -> None:
    x = rows()
    lowered = with_budget(Broken(), memory_budget="1000")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="smallest that can be reached is") as raised:
            lowered(x)
    share = re.search(r"reached is [\d.]+ [KM]iB \(([\d.]+) of", str(raised.value))
    assert share is not None
    reachable = with_budget(Broken(), memory_budget=1.006 * float(share.group(1)))
    step(reachable, x)
    (plan,) = plans(reachable)
    assert plan["predicted_peak_bytes"] <= 1.006 * float(share.group(1)) * plan["unplanned_peak_bytes"]


def test_a_saved_module_keeps_the_budget(tmp_path: Path, tracker: Tracker) -> None:
    x = rows()
    lowered = with_budget(Broken(), memory_budget=0.6)
    step(lowered, x)
    lowered.save(str(tmp_path / "broken.pt"))
    loaded = torch.jit.load(str(tmp_path / "broken.pt"))
    assert torch.equal(step(loaded, x), step(lowered, x))
    assert_same([p.grad for p in loaded.parameters()], [p.grad for p in lowered.parameters()])
    assert peak_bytes(loaded, x, tracker) <= plans(lowered)[0]["unplanned_peak_bytes"] * 0.6 + OUTSIDE_BYTES


@pytest.mark.parametrize("make", [Broken, Printing, Looping])
def test_a_pinned_plan_tells_equal_regions_apart(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    x = rows()
    planned = with_budget(make(), memory_budget=0.55)
    step(planned, x)
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    pinned = lowered_copy(make(), plan=str(tmp_path / "plan.json"), cost_model="flops")
    for module in (pinned, pinned, planned):
        module.load_state_dict(planned.state_dict())
        step(module, x)
    assert_same([p.grad for p in pinned.parameters()], [p.grad for p in planned.parameters()])
    chosen = [[variant["saved"] for variant in variants(module)] for module in (pinned, planned)]
    assert chosen[0] == chosen[1]
    assert len({tuple(saved) for saved in chosen[0]}) > 1
    (figures,), (expected,) = plans(pinned), plans(planned)
    for key in ("predicted_peak_bytes", "predicted_seconds", "predicted_saved_bytes"):
        assert figures[key] == expected[key]


def test_several_threads_can_train_with_one_budget() -> None:
    eager = Broken()
    lowered = with_budget(eager, memory_budget=0.6)
    inputs = [rows(64) for _ in range(4)]
    results: dict[int, list[Tensor]] = {}

    def work(index: int) -> None:
        for _ in range(3):
            loss = lowered(inputs[index])
            results[index] = list(torch.autograd.grad(loss, list(lowered.parameters()), allow_unused=True))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        step(eager, inputs[i])
        assert_same(results[i], [p.grad for p in eager.parameters()])


class Branching(nn.Module):
    """The caller decides which branch is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.a = Mlp(16, 3)
        self.b = Mlp(16, 3)
        self.c = Mlp(16, 6)

    def forward(self, x: Tensor, long: int) -> Tensor:
        x = self.a(x)
        if long > 0:
            x = self.c(x)
        else:
            x = self.b(x)
        print("between")
        return self.a(x).sum()


def test_each_branch_gets_a_plan_of_its_own() -> None:
    """A call without a plan recomputes as much as it can. When it is repeated, it gets a plan."""
    eager = Branching()
    lowered = with_budget(eager, memory_budget=0.6)
    x = rows(64)
    counts = []
    for long in (0, 0, 1, 1, 1, 0, 0, 1, 0, 1):
        for module in (lowered, eager):
            module.zero_grad(set_to_none=True)
            module(x, long).backward()
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        counts.append(len(plans(lowered)))
    assert counts == [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]


def test_frozen_layers_are_planned_again() -> None:
    eager = Broken()
    lowered = with_budget(eager, memory_budget=0.7)
    x = rows(64)
    step(lowered, x)
    assert len(plans(lowered)) == 1
    for module in (eager, lowered):
        for parameter in module.a.parameters():
            parameter.requires_grad_(False)
    for _ in range(3):
        assert torch.equal(step(lowered, x), step(eager, x))
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert len(plans(lowered)) == 2


@pytest.mark.parametrize("make", [Broken, Looping, lambda: Whole()], ids=["broken", "looping", "one_region"])
def test_larger_inputs_get_another_plan(make: Callable[[], nn.Module], tracker: Tracker) -> None:
    eager = make()
    small, large = rows(1024), rows(2048)
    budget = int(0.6 * peak_bytes(lowered_copy(eager, "none"), large, tracker))
    lowered = with_budget(eager, memory_budget=budget)
    counts = []
    for x in (small, large, small, large, rows(1500)):
        assert peak_bytes(lowered, x, tracker) <= budget + OUTSIDE_BYTES
        counts.append(len(variants(lowered)))
    # The first two inputs get a plan each. Smaller or repeated inputs get none.
    assert counts[1] == 2 * counts[0]
    assert counts[2:] == [counts[1]] * 3
    assert peak_bytes(with_budget(eager, memory_budget=10 * budget), large, tracker) > budget + OUTSIDE_BYTES


class Whole(Mlp):
    def __init__(self) -> None:
        super().__init__(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(torch.sigmoid(layer(x)))
        return (x * x).sum()


def test_smaller_inputs_need_no_other_plan() -> None:
    lowered = with_budget(Whole(), memory_budget="1GiB")
    step(lowered, rows(64))
    step(lowered, rows(32))
    assert len(variants(lowered)) == 1


def test_plans_for_eight_shapes_are_kept() -> None:
    lowered = with_budget(Whole(), memory_budget="1GiB")
    for count in range(1, 13):
        step(lowered, rows(count))
    assert len(variants(lowered)) == 8


class Recurrent(nn.Module):
    """Has an LSTM between two regions, which runs under ordinary autograd and keeps most of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.recurrent = nn.LSTM(64, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.after = nn.ModuleList([nn.Linear(128, 128) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.before:
            x = torch.tanh(layer(x)) * 1.1
        x, _ = self.recurrent(x)
        for layer in self.after:
            x = torch.tanh(layer(x)) * 1.1
        return x.pow(2).mean()


def test_memory_of_operators_between_regions_is_learnt_in_the_first_step(
    tracker: Tracker, capfd: pytest.CaptureFixture[str]
) -> None:
    lowered = lowered_copy(Recurrent(), "budget", memory_budget=0.95)
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
    lowered = lowered_copy(Recurrent(), "budget", memory_budget=0.4)
    with pytest.raises(RuntimeError, match=r"as operators between the regions need [0-9.]+ MiB"):
        lowered(torch.randn(16, 100, 64))
    leanest = lowered_copy(Recurrent(), "budget", memory_budget=0.4, unreachable="leanest")
    leanest(torch.randn(16, 100, 64)).backward()
    assert "it runs so" in capfd.readouterr().err


def test_a_profiler_may_begin_while_a_step_is_watched() -> None:
    lowered = lowered_copy(Recurrent(), "budget", memory_budget=0.95)
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
            lowered = lowered_copy(Recurrent(), "budget", memory_budget=0.95)
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
    lowered = lowered_copy(Recurrent(), "budget", memory_budget=0.95)
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
