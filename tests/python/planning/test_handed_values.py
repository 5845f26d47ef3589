"""What one region hands to the next may be dropped, and made again by the region that made it."""

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy
from support.several_regions import OUTSIDE_BYTES, Mlp, peak_bytes, plans, rows, step, with_budget

# Recorded paths would have one region.
pytestmark = pytest.mark.usefixtures("keeps_control_flow")

WIDTH = 16


class Chain(nn.Module):
    """Many regions, each of which reads the result of the one before."""

    def __init__(self, count: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Mlp(WIDTH, 2) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
            if bool(x.sum() > 1e9):
                print("large")
        return x.sum()


class Residual(nn.Module):
    """As Chain, of blocks whose backward does not read their result. Masks are random, statistics running."""

    def __init__(self, count: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Mlp(WIDTH, 2) for _ in range(count)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for block, norm in zip(self.blocks, self.norms):  # noqa: B905 - TorchScript knows no strict
            x = x + torch.nn.functional.dropout(norm(block(x)), 0.2, self.training)
            if bool(x.sum() > 1e9):
                print("large")
        return x.sum()


class Ignored(nn.Module):
    """A later region whose backward need not run, because its result is returned beside another."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = Mlp(WIDTH, 2), Mlp(WIDTH, 2), Mlp(WIDTH, 2), Mlp(WIDTH, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.a(x)
        early = torch.sigmoid(self.d(x)) * 2.0
        print("one")
        z = self.b(y)
        print("two")
        return self.c(z).sum(), early.sum()


def made_again(lowered: torch.jit.ScriptModule, path: Path) -> int:
    """Returns how many values are made again by another region, according to the plan file."""
    aten_recompute.save_plan(lowered, path)
    regions = json.loads(path.read_text())["regions"]
    return sum(len(region["handed"]) for region in regions)


def smallest(net: nn.Module, x: Tensor) -> tuple[int, int]:
    lowered = with_budget(net, memory_budget="1000")
    with pytest.raises(RuntimeError) as raised:
        lowered(x)
    error = aten_recompute.typed_error(raised.value) if hasattr(aten_recompute, "typed_error") else raised.value
    assert isinstance(error, aten_recompute.BudgetUnreachableError)
    return error.smallest_peak_bytes, error.unplanned_peak_bytes


@pytest.mark.parametrize("make", [Chain, Residual])
def test_the_smallest_peak_grows_slower_than_the_number_of_regions(make: Callable[[int], nn.Module]) -> None:
    x = rows()
    handed = x.numel() * x.element_size()
    few, many = (smallest(make(count), x)[0] for count in (8, 20))
    assert many - few < 0.6 * 12 * handed


@pytest.mark.parametrize("share", [0.6, 0.35, "smallest"])
@pytest.mark.parametrize("make", [Chain, Residual])
def test_the_budget_is_kept_and_predicted_and_gradients_equal_eager(
    make: Callable[[], nn.Module], share: float | str, tracker: Tracker, one_thread: None
) -> None:
    x = rows()
    eager = make()
    peak, unplanned = smallest(eager, x)
    budget = int(1.01 * peak) if share == "smallest" else int(float(share) * unplanned)
    lowered = with_budget(eager, memory_budget=budget)
    measured = peak_bytes(lowered, x, tracker)
    (plan,) = plans(lowered)
    assert plan["predicted_peak_bytes"] <= budget
    assert measured <= budget + OUTSIDE_BYTES
    assert abs(plan["predicted_peak_bytes"] - measured) <= 0.03 * measured
    lowered.load_state_dict(eager.state_dict())
    for seed in (1, 2):
        torch.manual_seed(seed)
        loss = step(eager, x)
        torch.manual_seed(seed)
        assert torch.equal(step(lowered, x), loss)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        assert_same(list(lowered.buffers()), list(eager.buffers()))


def lean(net: nn.Module, x: Tensor, **options: Any) -> torch.jit.ScriptModule:
    """Returns a module with the smallest peak, which has a plan for the whole method."""
    lowered = with_budget(net, memory_budget=int(1.01 * smallest(net, x)[0]), **options)
    step(lowered, x)
    lowered.load_state_dict(net.state_dict())
    lowered.zero_grad(set_to_none=True)
    return lowered


def test_values_are_made_again(tmp_path: Path) -> None:
    x = rows(512)
    assert made_again(lean(Chain(), x), tmp_path / "plan.json") >= 3
    everything = with_budget(Chain(), memory_budget=1.0)
    step(everything, x)
    assert made_again(everything, tmp_path / "plan.json") == 0


def test_a_pinned_plan_makes_the_same_values_again(tmp_path: Path, tracker: Tracker) -> None:
    x = rows()
    planned = lean(Chain(), x)
    count = made_again(planned, tmp_path / "plan.json")
    pinned = lowered_copy(Chain(), plan=str(tmp_path / "plan.json"), cost_model="flops")
    assert abs(peak_bytes(pinned, x, tracker) - peak_bytes(planned, x, tracker)) <= OUTSIDE_BYTES
    assert made_again(pinned, tmp_path / "again.json") == count > 0
    assert plans(pinned)[0]["predicted_peak_bytes"] == plans(planned)[0]["predicted_peak_bytes"]


@pytest.mark.lowered_only
def test_a_saved_module_makes_values_again(tmp_path: Path) -> None:
    x = rows(512)
    eager = Residual()
    buffer = io.BytesIO()
    torch.jit.save(lean(eager, x), buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    for seed in (1, 2):
        torch.manual_seed(seed)
        loss = step(eager, x)
        torch.manual_seed(seed)
        assert torch.equal(step(loaded, x), loss)
        assert_same([p.grad for p in loaded.parameters()], [p.grad for p in eager.parameters()])
    assert made_again(loaded, tmp_path / "plan.json") > 0


@pytest.mark.parametrize("make", [Chain, Residual])
def test_a_second_backward_through_the_same_graph_equals_the_first(make: Callable[[], nn.Module]) -> None:
    x = rows(256)
    eager = make()
    lowered = lean(eager, x)
    for module in (eager, lowered):
        torch.manual_seed(3)
        loss = module(x)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


def test_second_derivatives_equal_eager() -> None:
    x = rows(64)
    eager = Chain(4)
    lowered = lean(eager, x)
    results = []
    for module in (eager, lowered):
        parameters = list(module.parameters())
        first = torch.autograd.grad(module(x), parameters, create_graph=True)
        results.append(torch.autograd.grad(torch.stack([(g * g).sum() for g in first]).sum(), parameters))
    for got, want in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, want)


def test_other_shapes_and_gradients_of_some_parameters_equal_eager() -> None:
    eager = Residual()
    lowered = lean(eager, rows(256))
    for count in (100, 256, 200, 100):
        x = rows(count)
        for chosen in (slice(None), slice(0, 4), slice(20, 24), slice(-6, None)):
            got = []
            for module in (eager, lowered):
                torch.manual_seed(count)
                got.append(torch.autograd.grad(module(x), list(module.parameters())[chosen]))
            assert_same(got[1], got[0])


def test_a_region_whose_backward_never_runs_does_no_harm() -> None:
    x = rows(256)
    eager = Ignored()
    lowered = lowered_copy(eager, "budget", cost_model="flops", memory_budget=0.4, unreachable="leanest")
    for _ in range(2):
        sum(lowered(x)).backward()
    lowered.zero_grad(set_to_none=True)
    for order in ((0,), (1,), (1, 0), (0, 1)):
        for module in (eager, lowered):
            module.zero_grad(set_to_none=True)
            outputs = module(x)
            for index in order:
                outputs[index].backward(retain_graph=index != order[-1])
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


def test_parameters_of_a_later_region_can_be_differentiated_after_an_earlier_one_was_released() -> None:
    x = rows(256)
    eager = Chain(4)
    lowered = lean(eager, x)
    got = []
    for module in (eager, lowered):
        parameters = list(module.parameters())
        loss = module(x)
        later = torch.autograd.grad(loss, parameters[-4:], retain_graph=True)
        got.append([*later, *torch.autograd.grad(loss, parameters)])
    assert_same(got[1], got[0])


def test_a_change_in_place_of_what_is_read_again_raises() -> None:
    lowered = lean(Chain(), rows(256))
    x = rows(256).clone()
    loss = lowered(x)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_several_threads_make_values_again() -> None:
    eager = Residual()
    eager.train(False)
    inputs = [rows(128) for _ in range(4)]
    lowered = lean(eager, inputs[0])
    results: dict[int, list[Tensor]] = {}

    def work(index: int) -> None:
        for _ in range(3):
            results[index] = list(torch.autograd.grad(lowered(inputs[index]), list(lowered.parameters())))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(4):
        assert_same(results[index], torch.autograd.grad(eager(inputs[index]), list(eager.parameters())))


def test_saved_tensors_hooks_see_the_values() -> None:
    x = rows(128)
    eager = Chain(4)
    lowered = lean(eager, x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        loss = lowered(x)
    loss.backward()
    step(eager, x)
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
