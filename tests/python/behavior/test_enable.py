"""Modules and functions that are planned where they are, by ``aten_recompute.enable``."""

import contextlib
import copy
import gc
import inspect
import io
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks import models
from benchmarks.memory import Tracker
from support.dropout_nets import Net, assert_trains_as, layers_of, step
from support.helpers import assert_same, lowered_copy, num_compiled, saved_and_loaded, scripted_copy

STRATEGIES: list[tuple[str, dict[str, Any]]] = [("none", {}), ("all", {}), ("budget", {"memory_budget": 0.8})]


class Outer(nn.Module):
    """Calls another module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x)
        return result


@pytest.fixture
def eager() -> Net:
    return Net()


@pytest.fixture
def scripted(eager: Net) -> torch.jit.ScriptModule:
    return scripted_copy(eager)


@pytest.fixture(autouse=True)
def nothing_stays_enabled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Objects of one class share executors, which stay those of ``enable`` as long as an object is enabled."""
    targets: list[Any] = []
    enable = aten_recompute.enable

    def enable_and_note(target: Any = None, *args: Any, **kwargs: Any) -> None:
        if isinstance(target, torch.jit.ScriptModule):
            targets.append(weakref.ref(target))
        enable(target, *args, **kwargs)

    monkeypatch.setattr(aten_recompute, "enable", enable_and_note)
    yield
    aten_recompute.disable()
    for target in targets:
        if (module := target()) is not None:
            with contextlib.suppress(ValueError):
                aten_recompute.disable(module)


@pytest.mark.parametrize(("strategy", "options"), STRATEGIES)
def test_an_enabled_module_is_the_same_object_and_trains_as_in_eager(
    eager: Net, scripted: torch.jit.ScriptModule, strategy: str, options: dict[str, Any]
) -> None:
    kind, layers, code, graph = scripted._c._type(), layers_of(scripted), scripted.code, str(scripted.graph)
    parameters = list(scripted.parameters())
    aten_recompute.enable(scripted, strategy, **options)
    assert_trains_as(scripted, eager)
    assert num_compiled(scripted) > 0
    assert scripted._c._type() == kind
    assert all(a is b for a, b in zip(layers_of(scripted), layers, strict=True))
    assert isinstance(scripted, torch.jit.RecursiveScriptModule)
    assert (scripted.code, str(scripted.graph)) == (code, graph)
    assert all(a is b for a, b in zip(scripted.parameters(), parameters, strict=True))
    with torch.no_grad():
        assert torch.equal(scripted.eval()(x := torch.rand(2, 32), scale=2.0), eager.eval()(x, 2.0))


def test_disable_brings_the_executor_back(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    x = torch.rand(3, 32)
    eager.eval()
    scripted.eval()
    for _ in range(4):
        scripted(x).sum().backward()
    before = str(torch.jit.last_executed_optimized_graph())  # of the backward
    scripted(x)
    forward = str(torch.jit.last_executed_optimized_graph())
    aten_recompute.enable(scripted, "all")
    scripted(x).sum().backward()
    assert "planned_call" in str(torch.jit.last_executed_optimized_graph())
    aten_recompute.disable(scripted)
    scripted(x)
    assert str(torch.jit.last_executed_optimized_graph()) == forward
    scripted(x).sum().backward()
    assert str(torch.jit.last_executed_optimized_graph()) == before
    with pytest.raises(ValueError, match=r"^disable: this is not enabled"):
        aten_recompute.disable(scripted)


def test_other_objects_of_the_class_are_not_enabled(eager: Net) -> None:
    ours, others = torch.jit.script(eager), torch.jit.script(copy.deepcopy(eager))
    assert ours._c._type() == others._c._type()
    aten_recompute.enable(ours, "all")
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(others)
    for _ in range(4):
        assert_same(step(ours, ours, x := torch.rand(3, 32)), step(eager, eager, x))
        step(others, others, x)
    aten_recompute.enable(others, "segments")
    aten_recompute.disable(ours)
    assert_trains_as(others, eager)
    assert aten_recompute.report(others)["methods"][0]["options"]["strategy"] == "segments"


def test_a_module_can_be_enabled_anew(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    aten_recompute.enable(scripted, "all")
    assert_trains_as(scripted, eager)
    aten_recompute.enable(scripted, "budget", memory_budget=0.8)
    assert_trains_as(scripted, eager)
    (method,) = aten_recompute.report(scripted)["methods"]
    assert method["options"]["strategy"] == "budget"


@pytest.mark.parametrize("calls_before", [1, 2, 3, 4])
def test_enabling_after_training_began(eager: Net, scripted: torch.jit.ScriptModule, calls_before: int) -> None:
    optimizers = [torch.optim.AdamW(module.parameters(), lr=0.01) for module in (scripted, eager)]
    for call in range(calls_before + 4):
        if call == calls_before:
            # TorchScript's own gradients have other last bits than eager's.
            scripted.load_state_dict(eager.state_dict())
            optimizers[0].load_state_dict(copy.deepcopy(optimizers[1].state_dict()))
            aten_recompute.enable(scripted, "all")
        x = torch.rand(5, 32)
        ours, theirs = step(scripted, scripted, x, call), step(eager, eager, x, call)
        if call >= calls_before:
            assert_same(ours, theirs)
        for optimizer in optimizers:
            optimizer.step()


def test_the_first_calls_may_need_no_gradient(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    aten_recompute.enable(scripted, "all")
    with torch.no_grad():
        for _ in range(4):
            scripted(torch.rand(5, 32))
    assert_trains_as(scripted, eager)
    assert num_compiled(scripted) > 0


@pytest.mark.parametrize("executor", [True, False])
@pytest.mark.parametrize("profiling", [True, False])
def test_every_executor_of_torchscript(eager: Net, executor: bool, profiling: bool) -> None:
    old_executor = torch._C._jit_set_profiling_executor(executor)
    old_profiling = torch._C._get_graph_executor_optimize(profiling)
    try:
        scripted = scripted_copy(eager)
        aten_recompute.enable(scripted, "all")
        assert_trains_as(scripted, eager)
        with torch.jit.optimized_execution(False):
            assert_trains_as(scripted, eager)
        assert num_compiled(scripted) > 0
    finally:
        torch._C._jit_set_profiling_executor(old_executor)
        torch._C._get_graph_executor_optimize(old_profiling)


@torch.jit.script
def inner_loss(x: Tensor, y: Tensor, power: int = 2) -> Tensor:
    return torch.tanh(torch.sin(x) * y).pow(power).sum()


@torch.jit.script
def outer_loss(x: Tensor, y: Tensor) -> Tensor:
    return inner_loss(x * 2, y) + inner_loss(x, y * 3, 3)


def gradients(function: Callable[..., Tensor], x: Tensor, y: Tensor, **kwargs: Any) -> list[Tensor]:
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = function(x, y, **kwargs)
    return [value.detach(), *torch.autograd.grad(value, [x, y])]


def eager_inner(x: Tensor, y: Tensor, power: int = 2) -> Tensor:
    return torch.tanh(torch.sin(x) * y).pow(power).sum()


def eager_outer(x: Tensor, y: Tensor) -> Tensor:
    return eager_inner(x * 2, y) + eager_inner(x, y * 3, 3)


@pytest.mark.parametrize(("strategy", "options"), STRATEGIES)
def test_a_function_trains_as_in_eager(strategy: str, options: dict[str, Any]) -> None:
    with aten_recompute.enabled(inner_loss, strategy, **options):
        for call in range(4):
            x, y = torch.rand(400 - call, 8), torch.rand(400 - call, 8)
            assert_same(gradients(inner_loss, x, y), gradients(eager_inner, x, y))
            assert_same(gradients(inner_loss, x, y, power=3), gradients(eager_inner, x, y, power=3))
        (method,) = aten_recompute.report(inner_loss)["methods"]
        assert method["method"] == "inner_loss"
        assert method["specialisations"]
    with pytest.raises(ValueError, match="report: the function inner_loss is not enabled"):
        aten_recompute.report(inner_loss)


@pytest.mark.parametrize("calls_before", [0, 4])
def test_a_function_that_calls_an_enabled_one_runs_it_planned(calls_before: int) -> None:
    x, y = torch.rand(30, 8), torch.rand(30, 8)
    for _ in range(calls_before):  # it inlines the other one then
        gradients(outer_loss, x, y)
    with aten_recompute.enabled(inner_loss, "all"):
        for _ in range(4):
            gradients(outer_loss, x, y)
        assert num_compiled(inner_loss) > 0
    for _ in range(3):
        gradients(outer_loss, x, y)
    assert "planned_call" not in str(torch.jit.last_executed_optimized_graph())


def test_nested_enabled_functions_are_planned_as_a_whole() -> None:
    x, y = torch.rand(30, 8), torch.rand(30, 8)
    with aten_recompute.enabled(inner_loss, "all"), aten_recompute.enabled(outer_loss, "all"):
        for _ in range(4):
            assert_same(gradients(outer_loss, x, y), gradients(eager_outer, x, y))
        assert num_compiled(outer_loss) == 1
        assert num_compiled(inner_loss) == 0


class Parent(Net):
    """Has a class of its own, of which no other test enables an object."""


@pytest.mark.parametrize("calls_before", [0, 4])
def test_the_parent_of_an_enabled_module_runs_it_planned(calls_before: int) -> None:
    eager = Parent()
    scripted = scripted_copy(eager)
    for _ in range(calls_before):
        step(scripted, scripted, torch.rand(5, 32))
    for layer in layers_of(scripted):
        aten_recompute.enable(layer, "all")
    for call in range(4):
        x = torch.rand(5, 32)
        ours, theirs = step(scripted, scripted, x, call), step(eager, eager, x, call)
        for a, b in zip(ours, theirs, strict=True):  # what is not enabled has TorchScript's own gradients
            torch.testing.assert_close(a, b)
    assert all(num_compiled(layer) > 0 for layer in layers_of(scripted))
    for layer in layers_of(scripted):
        aten_recompute.disable(layer)
    scripted(x)
    assert "planned_call" not in str(torch.jit.last_executed_optimized_graph())


def test_several_methods_may_be_enabled(eager: Net) -> None:
    scripted = torch.jit.script(copy.deepcopy(eager))
    aten_recompute.enable(scripted, "all", methods=["forward", "features"])
    assert sorted(m["method"] for m in aten_recompute.report(scripted)["methods"]) == ["features", "forward"]
    for call in range(4):
        x = torch.rand(5, 32)
        assert_same(step(scripted.features, scripted, x, call), step(eager.features, eager, x, call))
    assert_trains_as(scripted, eager)


class Forks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(32, 32)
        self.right = nn.Linear(32, 32)

    def branch(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.relu(self.left(x)))

    def forward(self, x: Tensor) -> Tensor:
        future = torch.jit.fork(self.branch, x)
        right = torch.tanh(self.right(x))
        return torch.jit.wait(future) + right


@pytest.mark.parametrize("methods", ["forward", "branch"])
def test_fork_and_wait(methods: str) -> None:
    eager = Forks()
    scripted = scripted_copy(eager)
    aten_recompute.enable(scripted, "all", methods=methods)
    for call in range(4):
        x = torch.rand(5, 32)
        ours, theirs = step(scripted, scripted, x, call), step(eager, eager, x, call)
        for a, b in zip(ours, theirs, strict=True):  # what is not enabled has TorchScript's own gradients
            torch.testing.assert_close(a, b)


class ForkedDropout(nn.Module):
    """Random numbers are drawn on another thread, while this one compiles a region that draws none."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(32, 128), nn.Linear(32, 128)

    def branch(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(torch.relu(self.left(x)), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        future = torch.jit.fork(self.branch, x)
        right = torch.tanh(self.right(x))
        return (torch.jit.wait(future) + right).square().mean()


@pytest.mark.parametrize("options", [{"strategy": "segments"}, {"strategy": "budget", "memory_budget": 1.0}])
def test_what_a_fork_draws_is_not_undone(options: dict[str, Any]) -> None:
    eager, x = ForkedDropout(), torch.randn(512, 32)

    def losses(module: nn.Module) -> list[float]:
        torch.manual_seed(0)
        return [module(x).item() for _ in range(3)] + torch.rand(1).tolist()

    expected = losses(eager)
    for _ in range(10):  # the threads run against each other in a first call only
        scripted = scripted_copy(eager)
        aten_recompute.enable(scripted, **options)
        assert losses(scripted) == expected


def test_threads(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    eager.eval()
    scripted.eval()
    aten_recompute.enable(scripted, "all")
    inputs = [torch.rand(4, 32) for _ in range(16)]
    expected = [step_of_input(eager, x) for x in inputs]
    results: list[Tensor | None] = [None] * len(inputs)

    def work(first: int) -> None:
        for i in range(first, len(inputs), 4):
            results[i] = step_of_input(scripted, inputs[i])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, theirs in zip(results, expected, strict=True):
        assert ours is not None
        assert torch.equal(ours, theirs)


def step_of_input(module: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(module(x).square().sum(), x)
    return gradient


@pytest.mark.parametrize("while_enabled", ["module", "layer", "function"])
def test_freezing_gives_plain_torchscript(
    eager: Net, scripted: torch.jit.ScriptModule, while_enabled: str, tmp_path: Path
) -> None:
    x = torch.rand(3, 32)
    target: Any = {"module": scripted, "layer": layers_of(scripted)[0], "function": inner_loss}[while_enabled]
    module = torch.jit.script(Caller()) if while_enabled == "function" else scripted
    expected = module.eval()(x)
    with aten_recompute.enabled(target, "all"):
        frozen = torch.jit.freeze(module.eval())
        assert "planned_call" not in str(frozen.graph)
        torch.testing.assert_close(frozen(x), expected)
        frozen.save(tmp_path / "frozen.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "frozen.pt")(x), expected)


class Caller(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return inner_loss(x, x) + x


def test_a_saved_module_needs_no_library(eager: Net, scripted: torch.jit.ScriptModule, tmp_path: Path) -> None:
    aten_recompute.enable(scripted, "all")
    assert_trains_as(scripted, eager)
    scripted.eval().save(tmp_path / "saved.pt")
    x = torch.rand(3, 32)
    torch.save((x, step_of_input(eager.eval(), x)), tmp_path / "expected.pt")
    program = f"""
import sys, torch
loaded = torch.jit.load({str(tmp_path / "saved.pt")!r})
x, expected = torch.load({str(tmp_path / "expected.pt")!r})
for _ in range(4):
    y = x.clone().requires_grad_()
    loaded(y).square().sum().backward()
    torch.testing.assert_close(y.grad, expected)
assert "aten_recompute" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


def test_a_loaded_module_can_be_enabled(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    loaded = saved_and_loaded(scripted)
    aten_recompute.enable(loaded, "all")
    assert_trains_as(loaded, eager)
    assert num_compiled(loaded) > 0


def test_a_traced_module_can_be_enabled() -> None:
    eager = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    traced = torch.jit.trace(copy.deepcopy(eager), torch.rand(2, 32))
    aten_recompute.enable(traced, "all")
    assert_trains_as(traced, eager)


def test_a_traced_function_can_be_enabled() -> None:
    traced = torch.jit.trace(eager_inner, (torch.rand(3, 8), torch.rand(3, 8)))
    aten_recompute.enable(traced, "all")
    for _ in range(4):
        x, y = torch.rand(5, 8), torch.rand(5, 8)
        assert_same(gradients(traced, x, y), gradients(eager_inner, x, y))


def test_a_deep_copy_trains_by_itself_and_is_not_enabled(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    aten_recompute.enable(scripted, "all")
    other = copy.deepcopy(scripted)
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(other)
    x = torch.rand(3, 32)
    assert torch.equal(other.eval()(x), eager.eval()(x))
    eager.train()
    assert_trains_as(scripted.train(), eager)


def test_a_clone_is_enabled(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    aten_recompute.enable(scripted, "budget", memory_budget=0.9)
    aten_recompute.enable(layers_of(scripted)[1], "all")
    clone = aten_recompute.clone(scripted)
    for module in (clone, layers_of(clone)[1]):
        assert aten_recompute.report(module)["methods"][0]["specialisations"] == []
    assert aten_recompute.report(clone)["methods"][0]["options"]["memory_budget"] == 0.9
    assert_trains_as(clone, eager)
    assert num_compiled(clone) > 0
    assert num_compiled(scripted) == 0


def doubled(module: Any, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return output * 2


def test_hooks_of_torchscript_run(eager: Net) -> None:
    eager.layers[1].register_forward_hook(doubled)
    scripted = scripted_copy(eager)
    aten_recompute.enable(scripted, "all")
    assert_trains_as(scripted, eager)
    assert num_compiled(scripted) > 0


@pytest.mark.lowered_only
def test_what_is_enabled_can_be_lowered_and_what_contains_lowered_parts_not_enabled(
    eager: Net, scripted: torch.jit.ScriptModule
) -> None:
    aten_recompute.enable(scripted, "all")
    lowered = aten_recompute.lower(scripted, "segments")
    assert_trains_as(lowered, eager)
    assert num_compiled(scripted) == 0
    with pytest.raises(ValueError, match=r"^enable: the module is lowered already: enable what .*unlower returns$"):
        aten_recompute.enable(lowered)


def test_a_module_that_is_gone_leaves_no_memory(scripted: torch.jit.ScriptModule) -> None:
    loaded = saved_and_loaded(scripted)
    aten_recompute.enable(loaded, "all")
    loaded(torch.rand(3, 32)).sum().backward()
    loaded.__dict__["in_a_cycle"] = loaded
    parameter = weakref.ref(next(loaded.parameters()))
    del loaded
    gc.collect()
    assert parameter() is None


@pytest.mark.parametrize("before", [True, False])
def test_tags_define_the_layers(before: bool) -> None:
    eager = Net(layers=4)
    if before:
        aten_recompute.inject_layer_tags(eager, r"layers\.[13]")
    scripted = scripted_copy(eager)
    if not before:
        aten_recompute.inject_layer_tags(scripted, r"layers\.[13]")
    aten_recompute.enable(scripted, "layers", start=1)
    assert_trains_as(scripted, eager)
    (region,) = aten_recompute.report(scripted)["methods"][0]["specialisations"][0]["regions"]
    assert sum("tanh" in name for name in region["variants"][0]["recomputed"]) == 1


@pytest.mark.parametrize("name", ["gpt", "resnet50"])
def test_budgets_are_kept_as_predicted(name: str, tracker: Tracker) -> None:
    workload = models.make(name, size="small")
    scripted = scripted_copy(workload.module)
    aten_recompute.enable(scripted, "budget", memory_budget=0.8, release_outputs=True)
    for _ in range(3):
        workload.step(scripted)
    scripted.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        workload.step(scripted)
    (region,) = aten_recompute.report(scripted)["methods"][0]["specialisations"][0]["regions"]
    variant = region["variants"][-1]
    assert peak.bytes <= 0.8 * variant["unplanned_peak_bytes"]
    assert abs(peak.bytes - variant["predicted_peak_bytes"]) <= 0.03 * variant["predicted_peak_bytes"]


def test_plans_of_enabled_modules_are_saved_and_followed(
    eager: Net, scripted: torch.jit.ScriptModule, tmp_path: Path
) -> None:
    aten_recompute.enable(scripted, "budget", memory_budget=0.8, cost_model="flops")
    with pytest.raises(ValueError, match="nothing is planned yet"):
        aten_recompute.save_plan(scripted, tmp_path / "plan.json")
    step(scripted, scripted, torch.rand(64, 32))
    aten_recompute.save_plan(scripted, tmp_path / "plan.json")
    assert aten_recompute.problems(scripted)
    other = scripted_copy(eager)
    aten_recompute.enable(other, plan=str(tmp_path / "plan.json"))
    x = torch.rand(64, 32)
    assert_same(step(other, other, x), step(eager, eager, x))
    aten_recompute.release_memory()


def test_a_parent_of_a_lowered_module_that_is_gone_is_no_caller(eager: Net) -> None:
    """Python's compilation unit keeps the parent's methods, whose calls name the type of the lowered module."""
    for _ in range(5):
        torch.jit.script(Outer(aten_recompute.lower(scripted_copy(eager), "all")))
    gc.collect()
    scripted = scripted_copy(eager)
    aten_recompute.enable(scripted, "all")
    assert_trains_as(scripted, eager)


# Everything that a process makes.


def test_everything_that_is_scripted_traced_or_loaded_is_enabled(eager: Net) -> None:
    buffer = io.BytesIO()
    torch.jit.save(scripted_copy(eager), buffer)
    buffer.seek(0)
    aten_recompute.enable("budget", memory_budget=0.9)
    made = [
        torch.jit.script(copy.deepcopy(eager)),
        torch.jit.trace(copy.deepcopy(eager).eval(), torch.rand(2, 32)),
        torch.jit.trace_module(copy.deepcopy(eager).eval(), {"forward": torch.rand(2, 32)}),
        torch.jit.load(buffer),
    ]
    for module in made:
        assert aten_recompute.report(module)["methods"][0]["options"]["memory_budget"] == 0.9
    aten_recompute.disable()
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(scripted_copy(eager))
    assert_trains_as(made[0], eager)
    assert_trains_as(made[3], eager)


def test_functions_are_enabled_but_not_those_that_a_module_calls(eager: Net) -> None:
    with aten_recompute.enabled("all"):
        module = torch.jit.script(Caller())
        function = torch.jit.script(eager_outer)
    assert aten_recompute.report(module)["methods"][0]["options"]["strategy"] == "all"
    assert aten_recompute.report(function)["methods"][0]["options"]["strategy"] == "all"
    with pytest.raises(ValueError, match="not enabled"):
        aten_recompute.report(inner_loss)
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(scripted_copy(eager))
    aten_recompute.disable(function)


def test_what_was_enabled_by_itself_keeps_its_options(eager: Net, scripted: torch.jit.ScriptModule) -> None:
    aten_recompute.enable(scripted, "segments")
    with aten_recompute.enabled("all"):
        assert torch.jit.script(scripted) is scripted
    assert aten_recompute.report(scripted)["methods"][0]["options"]["strategy"] == "segments"


def test_classes_that_are_scripted_meanwhile_are_left_alone() -> None:
    with aten_recompute.enabled("all"):
        scripted_class = torch.jit.script(Pair)
    assert scripted_class is Pair


class Pair:
    def __init__(self, x: int) -> None:
        self.x = x


# Bad input.


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda api, m: api.enable(Net(), "all"), TypeError, r"call torch.jit.script\(Net\(...\)\) first$"),
        (
            lambda api, m: api.enable(eager_inner, "all"),
            TypeError,
            r"call torch.jit.script\(eager_inner\) first$",
        ),
        (
            lambda api, m: api.enable(3, "all"),
            TypeError,
            "^enable takes a torch.jit.ScriptModule or .*, not int$",
        ),
        (lambda api, m: api.enable("all", "all"), TypeError, "^enable takes one strategy"),
        (lambda api, m: api.enable(m, "al"), ValueError, 'got "al".*did you mean "all"'),
        (lambda api, m: api.enable("al"), ValueError, 'got "al".*did you mean "all"'),
        (
            lambda api, m: api.enable(m, methods="foward"),
            ValueError,
            'no method "foward" to enable; did you mean',
        ),
        (lambda api, m: api.enable(m, "all", pattern="nothing.*"), ValueError, "nothing"),
        (lambda api, m: api.disable(eager_inner), TypeError, "^disable takes a scripted or traced module"),
        (lambda api, m: api.disable(inner_loss), ValueError, "^disable: this is not enabled"),
        (lambda api, m: api.report(m), ValueError, "aten_recompute.enable plans a module where it is"),
    ],
)
def test_bad_input_is_one_line_and_enables_nothing(
    scripted: torch.jit.ScriptModule, call: Callable[[Any, Any], None], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        call(aten_recompute, scripted)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="not a lowered module"):
        aten_recompute.report(scripted)
    assert inspect.signature(scripted.forward)  # and its methods are what they were


def test_callers_of_what_is_gone_are_passed_over() -> None:
    """PyTorch keeps every graph that Python scripted, and with it calls of methods whose loaded module is gone."""
    for _ in range(20):
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(nn.Linear(4, 4)), buffer)
        buffer.seek(0)
        torch.jit.script(Outer(torch.jit.load(buffer)))
    gc.collect()
    scripted = torch.jit.script(nn.Linear(4, 4))
    aten_recompute.enable(scripted, "all")
    scripted(torch.rand(2, 4)).sum().backward()


def test_a_function_is_enabled_after_lowered_modules_inside_others_are_gone() -> None:
    """The class of the outer module outlives it, and with that calls of methods that are gone."""
    for _ in range(3):
        outer = torch.jit.script(Outer(lowered_copy(nn.Linear(3, 3), "all")))
        outer(torch.rand(2, 3))
        del outer
        gc.collect()
    function = torch.jit.script(plain_product)
    with aten_recompute.enabled(function, "all"):
        assert_same([function(torch.ones(2), torch.ones(2))], [torch.ones(2)])


def plain_product(x: Tensor, y: Tensor) -> Tensor:
    return x * y
