"""Single passes, run by name on graphs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import passes

REGION = """
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu(%h)
  %z : Tensor = aten::sin(%y)
  return (%z)
"""


def region() -> Any:
    return torch._C.parse_ir(REGION)


def joint() -> Any:
    (graph,) = passes.run("differentiate", region())
    return graph


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.scale = 2.0

    def forward(self, x: Tensor, extra: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) * self.scale
        return x if extra is None else x + extra


ANY_NET: Any = Net()


def check(graph: Any, *patterns: str, absent: tuple[str, ...] = ()) -> None:
    finder = torch._C.FileCheck()
    for pattern in patterns:
        finder = finder.check(pattern)
    finder.run(graph)
    for pattern in absent:
        torch._C.FileCheck().check_not(pattern).run(graph)


def test_every_pass_has_a_line() -> None:
    names = passes.names()
    assert list(names)[:3] == ["inline_modules", "profiler_ranges", "number_constants"]
    assert len(set(names.values())) == len(names)
    assert all(line and "\n" not in line for line in names.values())


@pytest.mark.parametrize("name", passes.names())
def test_every_pass_runs(name: str) -> None:
    scripted = torch.jit.script(Net())
    inputs_of_region = {"inputs": (torch.rand(2, 3), torch.rand(3, 4))}
    on_region: dict[str, dict[str, Any]] = {
        "noop_elimination": inputs_of_region,
        "insert_casts": inputs_of_region,
        "slice_rows": inputs_of_region,
    }
    on_joint = ("sum_parts", "hoist_metadata", "name_values", "alternatives", "profile", "plan", "splice", "extract")
    in_region = (
        "channels_last",
        "fuse_batch_norm",
        "expand_gradients",
        "differentiate",
        "split_sums",
        "undefined_gradients",
    )
    kwargs: dict[str, Any]
    if name in on_joint:
        graph, kwargs = joint(), {"inputs": (torch.rand(2, 3), torch.rand(3, 4))}
        if name == "splice":
            passes.run("plan", graph, strategy="all")
    elif name in in_region or name in on_region:
        graph, kwargs = region(), on_region.get(name, {})
    else:
        graph, kwargs = scripted.inlined_graph, {"module": scripted, "inputs": (torch.rand(2, 4), None)}
        if name == "inline_modules":
            graph = scripted.graph
    left = passes.run(name, graph, **kwargs)
    assert len(left) == (2 if name == "extract" else 1)
    for each in left:
        each.lint()


def test_inlining_keeps_the_module_of_each_node() -> None:
    (graph,) = passes.run("inline_modules", torch.jit.script(Net()).graph)
    check(graph, 'module_path="layers.0"', 'module_path="layers.1"', absent=("prim::CallMethod",))


def test_attributes_are_folded_and_a_path_is_a_straight_line() -> None:
    scripted = torch.jit.script(Net())
    (graph,) = passes.run("inline_modules", scripted.graph)
    (path,) = passes.run("record_path", graph, module=scripted, inputs=(torch.rand(2, 4), torch.rand(2, 4)))
    assert path is not graph
    passes.run("fold_attributes", path, module=scripted)
    check(path, "aten::linear", "aten::linear", absent=("prim::If", '"scale"'))


def test_the_passes_of_a_region_one_by_one() -> None:
    graph = joint()
    check(graph, "aten::sin", "aten_recompute::backward_start", "aten::threshold_backward")
    assert passes.run("plan", graph, strategy="all") == [graph]
    check(graph, "steps=")
    passes.run("splice", graph)
    check(graph, "backward_start", "aten::mm[recomputed=1]", "aten::relu[recomputed=1]", absent=("steps=",))
    forward, backward = passes.run("extract", graph)
    check(forward, "aten::sin", absent=("threshold_backward",))
    check(backward, "aten::mm", "aten::threshold_backward", absent=("backward_start",))


def test_a_plan_that_keeps_everything_copies_nothing() -> None:
    graph = joint()
    passes.run("plan", graph, strategy="none")
    passes.run("splice", graph)
    check(graph, "backward_start", absent=("recomputed",))


def test_a_budget_is_planned_for_inputs() -> None:
    deep = REGION.replace("return (%z)", "%a : Tensor = aten::tanh(%z)\n  %b : Tensor = aten::sin(%a)\n  return (%b)")
    (graph,) = passes.run("differentiate", torch._C.parse_ir(deep))
    passes.run("name_values", graph)
    passes.run("alternatives", graph)
    inputs = (torch.rand(512, 8), torch.rand(8, 8))
    passes.run("plan", graph, inputs=inputs, strategy="budget", memory_budget=0.8, cost_model="flops")
    passes.run("splice", graph)
    check(graph, "backward_start", "recomputed")


def test_a_profile_is_written_to_the_nodes() -> None:
    graph: Any
    (graph,) = passes.run("profile", joint(), inputs=(torch.rand(8, 16), torch.rand(16, 4)))
    (product,) = graph.findAllNodes("aten::mm")
    assert product.f("flops") == 2 * 8 * 16 * 4
    assert product.f("seconds") > 0


def test_inputs_without_gradient_are_left_out() -> None:
    (graph,) = passes.run("differentiate", region(), requires_grad=[False, True])
    assert len(list(graph.outputs())) == 2
    check(graph, "mm_grad_mat2", absent=("mm_grad_self",))


def test_copies_of_joint_graphs_can_be_planned() -> None:
    graph = joint().copy()
    passes.run("plan", graph, strategy="all")
    passes.run("splice", graph)
    check(graph, "recomputed")


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: passes.run("diferentiate", region()), ValueError, 'no pass "diferentiate".*mean "differentiate"'),
        (lambda: passes.run("splice", region()), ValueError, 'needs a joint graph, which the pass "differentiate"'),
        (lambda: passes.run("splice", joint()), ValueError, 'needs a schedule, which the pass "plan" makes'),
        (lambda: passes.run("fold_attributes", region()), ValueError, "needs the module that the graph is a method"),
        (lambda: passes.run("specialize_inputs", region()), ValueError, "inputs of a call: 1 of them, not 0"),
        (lambda: passes.run("plan", joint(), strategy="segments"), ValueError, "needs the inputs of the region.*2 of"),
        (lambda: passes.run("plan", joint(), strategy="al"), ValueError, 'got "al"'),
        (lambda: passes.run("differentiate", region(), requires_grad=[True]), ValueError, "1 flags.* 2 inputs"),
        (lambda: passes.run("differentiate", ANY_NET), TypeError, "takes a torch._C.Graph, .*, not Net"),
        (lambda: passes.run("fold_attributes", region(), module=ANY_NET), TypeError, "call torch.jit.script"),
    ],
)
def test_bad_input_is_one_line(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_passes_are_part_of_the_package() -> None:
    assert aten_recompute.passes is passes
