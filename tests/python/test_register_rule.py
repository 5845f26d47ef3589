"""Rules for operators of the user's own, against the same operators in eager."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
import torch
from helpers import assert_same, lowered_copy, step
from torch import Tensor, nn

import aten_recompute
from aten_recompute import register_rule

STRATEGIES: Dict[str, Dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "budget": {"strategy": "budget", "time_budget": 1.4, "cost_model": "flops"},
}
STRATEGY = pytest.mark.parametrize("strategy", STRATEGIES)

# Every kernel notes its name here when it runs. Operators below differ from eager's only in who
# calls them: a rule here, torch.library's autograd formula in eager.
calls: List[str] = []

library = torch.library.Library("recompute_rules", "DEF")


def define(schema: str, kernel: Callable[..., Any], tags: Tuple[Any, ...] = ()) -> None:
    name = schema[: schema.index("(")]
    library.define(schema, tags=tags)

    def noted(*arguments: Any) -> Any:
        calls.append(name)
        return kernel(*arguments)

    library.impl(name, noted, "CPU")


def autograd(name: str, backward: Callable[..., Any], keep: Callable[..., Tuple[Any, ...]]) -> None:
    """``keep(inputs, output)``: what ``backward`` reads behind the gradients."""

    def setup(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        kept = keep(inputs, output)
        ctx.plain = [None if isinstance(value, Tensor) else value for value in kept]
        ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in kept))

    def run(ctx: Any, *gradients: Any) -> Any:
        kept = [p if t is None else t for p, t in zip(ctx.plain, ctx.saved_tensors)]
        return backward(ctx, *gradients, *kept)

    torch.library.register_autograd(f"recompute_rules::{name}", run, setup_context=setup, lib=library)


# ---- the operators ----

define("scaled_tanh(Tensor x, float scale) -> Tensor", lambda x, scale: x.tanh() * scale)
autograd(
    "scaled_tanh",
    lambda ctx, grad, y, scale: (grad * (scale - y * y / scale), None),
    lambda inputs, y: (y, inputs[1]),
)


def scaled_tanh_backward(grad, result, scale: float):
    return grad * (scale - result * result / scale)


# Two outputs, an Optional tensor, an int.
define(
    "affine(Tensor x, Tensor weight, Tensor? bias, int dim) -> (Tensor, Tensor)",
    lambda x, weight, bias, dim: (
        x * weight if bias is None else x * weight + bias,
        x.cumsum(dim),
    ),
)


def affine_x(grad: Optional[Tensor], grad1: Optional[Tensor], weight, dim: int):
    if grad is not None:
        gradient = grad * weight
        if grad1 is not None:
            gradient = gradient + grad1.flip([dim]).cumsum(dim).flip([dim])
        return gradient
    else:
        assert grad1 is not None
        return grad1.flip([dim]).cumsum(dim).flip([dim])


def affine_weight(grad, x):
    return (grad * x).sum(0)


def affine_bias(grad):
    return grad.sum(0)


AFFINE = {"weight": affine_weight, "bias": affine_bias, "x": affine_x}
autograd(
    "affine",
    lambda ctx, grad, grad1, x, weight, bias, dim: (
        affine_x(grad, grad1, weight, dim),
        affine_weight(grad, x) if ctx.needs_input_grad[1] else None,
        None if bias is None else affine_bias(grad),
        None,
    ),
    lambda inputs, output: inputs,
)

# One function for all gradients; indices have none.
define("lookup(Tensor table, Tensor indices, float scale) -> Tensor", lambda t, i, s: t[i] * s)


def lookup_backward(grad, table, indices, scale: float):
    return torch.zeros_like(table).index_add(0, indices, grad * scale), None


autograd(
    "lookup",
    lambda ctx, grad, table, indices, scale: (*lookup_backward(grad, table, indices, scale), None),
    lambda inputs, output: inputs,
)

# What training runs returns more than the operator: the inverse of the norm.
define("unit(Tensor x, float eps) -> Tensor", lambda x, eps: x * (x.square().sum(-1, True) + eps).rsqrt())


def unit_forward(x, eps: float):
    inverse = (x.square().sum(-1, True) + eps).rsqrt()
    return x * inverse, inverse


def unit_backward(grad, x, inverse):
    return grad * inverse - x * (inverse * inverse * inverse) * (grad * x).sum(-1, True)


autograd(
    "unit",
    lambda ctx, grad, x, eps: (unit_backward(grad, x, unit_forward(x, eps)[1]), None),
    lambda inputs, output: inputs,
)

library.define("half(Tensor(a) x) -> Tensor(a)")

# A list of tensors.
define("weighted(Tensor[] xs, float weight) -> Tensor", lambda xs, weight: xs[0] * weight + xs[1])


def weighted_backward(grad, weight: float):
    return [grad * weight, grad]


class Tanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.scaled_tanh(x, 1.7)


class Affine(nn.Module):
    bias: Optional[Tensor]

    def __init__(self, bias: bool, which: str = "both") -> None:
        super().__init__()
        self.which = which
        self.weight = nn.Parameter(torch.rand(8))
        self.bias = nn.Parameter(torch.rand(8)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y, sums = torch.ops.recompute_rules.affine(x, self.weight, self.bias, 1)
        if self.which == "first":
            return y
        if self.which == "second":
            return sums * 0.3
        return y * sums.sigmoid()


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.rand(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        indices = x[:, 0].abs().mul(100).long() % 5
        return x * torch.ops.recompute_rules.lookup(self.table, indices, 0.5)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.unit(x, 1e-3)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.weighted([x.sigmoid(), x * self.other], 0.5)


class Net(nn.Module):
    """Blocks of a linear layer, the operator and a relu."""

    def __init__(self, make: Callable[[], nn.Module], depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(nn.Sequential(nn.Linear(8, 8), make(), nn.ReLU()) for _ in range(depth))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


CASES: Dict[str, Tuple[str, Callable[[], nn.Module], Dict[str, Any]]] = {
    "one": ("scaled_tanh", Tanh, {"backward": scaled_tanh_backward}),
    "two_outputs": ("affine", lambda: Affine(True), {"backward": AFFINE}),
    "no_bias": ("affine", lambda: Affine(False), {"backward": AFFINE}),
    "first_output": ("affine", lambda: Affine(True, "first"), {"backward": AFFINE}),
    "indices": ("lookup", Lookup, {"backward": lookup_backward}),
    "extras": (
        "unit",
        Unit,
        {"backward": unit_backward, "forward": unit_forward, "extras": ["inverse"]},
    ),
}
CASE = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    """Rules stay until others take their place, or nothing does."""
    yield
    for name in ("scaled_tanh", "affine", "lookup", "unit", "weighted", "state", "noise"):
        register_rule(f"recompute_rules::{name}", replace=True)
    register_rule("aten::tanh", replace=True)


def variant(lowered: torch.jit.ScriptModule) -> Dict[str, Any]:
    (method,) = aten_recompute.report(lowered)["methods"]
    (region,) = method["specialisations"][0]["regions"]
    return region["variants"][-1]


def compare(net: nn.Module, lowered: torch.jit.ScriptModule, steps: int = 2) -> None:
    torch.manual_seed(3)
    for seed in range(steps):
        x = torch.randn(6, 8)
        y = x.clone().requires_grad_()
        x.requires_grad_()
        expected = step(net, list(net.parameters()), (x,), seed)
        result = step(lowered, list(lowered.parameters()), (y,), seed)
        assert_same(result[0] + result[1] + [y.grad], expected[0] + expected[1] + [x.grad])


# ---- gradients ----


@STRATEGY
@CASE
def test_gradients_are_eagers(strategy: str, case: str) -> None:
    name, make, rule = CASES[case]
    register_rule(f"recompute_rules::{name}", **rule)
    net = Net(make)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    compare(net, lowered)
    assert variant(lowered)["on_tape"] == []


@STRATEGY
@CASE
def test_without_a_rule_autograd_differentiates(strategy: str, case: str) -> None:
    name, make, _ = CASES[case]
    net = Net(make)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    compare(net, lowered)
    assert variant(lowered)["on_tape"] == [f"recompute_rules::{name}"] * 3


@pytest.mark.parametrize("with_rule", [True, False])
def test_it_is_computed_again(with_rule: bool) -> None:
    if with_rule:
        register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    net = Net(Tanh)
    for strategy, runs in (("none", 3), ("all", 6)):
        lowered = lowered_copy(net, strategy)
        calls.clear()
        compare(net, lowered, steps=1)
        assert len(calls) - 3 == runs  # eager's own


@STRATEGY
def test_a_list_of_tensors(strategy: str) -> None:
    """Eager has no formula here: it runs the same operators by hand."""

    class Eager(Weighted):
        def forward(self, x: Tensor) -> Tensor:
            return x.sigmoid() * 0.5 + x * self.other

    register_rule("recompute_rules::weighted", backward=weighted_backward)
    torch.manual_seed(0)
    net = Net(Weighted)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    eager = Net(Eager)
    eager.load_state_dict(net.state_dict())
    compare(eager, lowered)


def test_only_what_is_asked_for_is_computed() -> None:
    """With the weight frozen nothing reads the operator's input, so it is not captured."""
    register_rule("recompute_rules::affine", backward=AFFINE)
    net = Net(lambda: Affine(True, "first"), depth=1)
    for frozen in (False, True):
        net.blocks[0][1].weight.requires_grad_(not frozen)
        lowered = lowered_copy(net, "none")
        compare(net, lowered, steps=1)
        assert ("linear_0" in " ".join(variant(lowered)["saved"])) == (not frozen)


def test_what_is_needed_is_known_when_it_is_compiled() -> None:
    def backward(grad, x, weight, grad1: Optional[Tensor], needs_weight: bool):
        weights: Optional[Tensor] = None
        if needs_weight:
            weights = (grad * x).sum(0)
        return grad * weight, weights, None

    register_rule("recompute_rules::affine", backward=backward)
    net = Net(lambda: Affine(False, "first"), depth=1)
    for frozen in (False, True):
        net.blocks[0][1].weight.requires_grad_(not frozen)
        lowered = lowered_copy(net, "none")
        compare(net, lowered, steps=1)
        assert ("linear_0" in " ".join(variant(lowered)["saved"])) == (not frozen)


def test_an_undefined_gradient_is_zeros_or_none() -> None:
    """Only the second output is used: there is no gradient of the first."""
    register_rule("recompute_rules::affine", backward=AFFINE)
    net = Net(lambda: Affine(True, "second"), depth=1)
    lowered = lowered_copy(net, "none")
    x = torch.randn(6, 8)
    lowered(x).sum().backward()
    net(x).sum().backward()
    inner, eager = dict(lowered.named_parameters()), dict(net.named_parameters())
    assert_same([inner["blocks.0.0.weight"].grad], [eager["blocks.0.0.weight"].grad])
    bias = inner["blocks.0.1.bias"].grad
    assert bias is not None and torch.equal(bias, torch.zeros(8))  # its parameter is a Tensor


def test_gradients_take_the_sizes_and_the_type_of_the_argument() -> None:
    def backward(grad, x, weight):
        return grad.double() * weight, grad * x, grad

    register_rule("recompute_rules::affine", backward=backward)
    net = Net(lambda: Affine(True, "first"), depth=1)
    compare(net, lowered_copy(net, "all"))


def test_a_gradient_of_other_sizes_raises() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=_halved)
    lowered = lowered_copy(Net(Tanh, depth=1), "none")
    output = lowered(torch.rand(6, 8))
    with pytest.raises(RuntimeError, match=r"scaled_tanh: the gradient of x has sizes \[6, 4\], but .* \[6, 8\]"):
        output.sum().backward()


def _halved(grad):
    return grad[:, :4]


@pytest.mark.parametrize("how", ["scripted", "traced"])
def test_functions_may_be_compiled_already(how: str) -> None:
    ones = torch.ones(6, 8)
    if how == "scripted":
        backward: Any = torch.jit.script(scaled_tanh_backward)
    else:
        backward = torch.jit.trace(lambda grad, result: grad * (1.7 - result * result / 1.7), (ones, ones))
    register_rule("recompute_rules::scaled_tanh", backward=backward)
    net = Net(Tanh)
    compare(net, lowered_copy(net, "all"))


# ---- running again ----

state = torch.zeros(())


def _counting(x: Tensor) -> Tensor:
    state.add_(1)
    return x * 2


define("state(Tensor x) -> Tensor", _counting)
autograd("state", lambda ctx, grad: grad * 2, lambda inputs, output: ())


def state_backward(grad):
    return grad * 2


def state_replay(x):
    return x * 2


class State(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.state(x).sigmoid()


@pytest.mark.parametrize("with_backward", [True, False])
@pytest.mark.parametrize("how", ["replay", "recomputable", "neither"])
def test_effects_that_a_second_run_must_not_have(how: str, with_backward: bool) -> None:
    rule: Dict[str, Any] = {"backward": state_backward} if with_backward else {}
    if how == "replay":
        rule["replay"] = state_replay
    if how == "recomputable":
        rule["recomputable"] = False
    if rule:
        register_rule("recompute_rules::state", **rule)
    net = Net(State)
    lowered = lowered_copy(net, "all")
    state.zero_()
    compare(net, lowered, steps=2)
    again = any("state_0" in name for name in variant(lowered)["recomputed"])
    assert again == (how != "recomputable")
    # Eager's own six, the first runs' six, and as many again where nothing was said.
    assert state.item() == 12 + (6 if how == "neither" else 0)


define("noise(Tensor x) -> Tensor", lambda x: x * torch.rand_like(x))


def noise_backward(grad, x, result):
    return grad * (result / x)


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.noise(x)


@pytest.mark.parametrize("random", [None, True, False])
def test_random_numbers(random: Optional[bool]) -> None:
    """Drawn again from the same state, unless the rule says that there is nothing to draw."""
    register_rule("recompute_rules::noise", backward=noise_backward, random=random)
    net = Net(Noise)
    gradients = {}
    for strategy in ("none", "all"):
        lowered = lowered_copy(net, strategy)
        gradients[strategy] = step(lowered, list(lowered.parameters()), (torch.ones(6, 8),))[1]
    same = all(torch.equal(a, b) for a, b in zip(gradients["none"], gradients["all"]))
    assert same == (random is not False)


# ---- the FLOP model ----


def _flops(x, scale: float, result):
    return 7 * x.size(0) * result.size(1) + int(scale)


@pytest.mark.parametrize("with_backward", [True, False])
def test_flops_are_those_of_the_rule(with_backward: bool) -> None:
    rule: Dict[str, Any] = {"backward": scaled_tanh_backward} if with_backward else {}
    register_rule("recompute_rules::scaled_tanh", flops=_flops, **rule)
    lowered = lowered_copy(Net(Tanh, depth=1), STRATEGIES["budget"])
    step(lowered, list(lowered.parameters()), (torch.rand(6, 8),))
    (problem,) = aten_recompute.problems(lowered)
    names = ["recompute_rules::scaled_tanh", "aten_recompute::tape_forward"]
    nodes = problem["nodes"]
    assert nodes["flops"][nodes["name"].index(names[not with_backward])] == 7 * 6 * 8 + 1


def test_a_plan_runs_again_what_its_rule_says_is_cheap() -> None:
    """Activations of one size, of which a budget leaves room for most."""

    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a = torch.ops.recompute_rules.scaled_tanh(x, 1.5)
            b = torch.ops.recompute_rules.unit(a, 1e-3)
            return torch.ops.recompute_rules.scaled_tanh(b, 1.5)

    for cheap, expensive in (("scaled_tanh", "unit"), ("unit", "scaled_tanh")):
        backward = {"scaled_tanh": scaled_tanh_backward, "unit": _unit_by_result}
        for name, flops in ((cheap, _few), (expensive, _many)):
            register_rule(f"recompute_rules::{name}", backward=backward[name], flops=flops, replace=True)
        net = nn.Sequential(Two(), Two(), Two(), Two())
        lowered = lowered_copy(net, "budget", memory_budget=0.9, cost_model="flops")
        lowered(torch.rand(64, 64, requires_grad=True)).sum().backward()
        recomputed = variant(lowered)["recomputed"]
        assert recomputed and all(name.startswith(cheap) for name in recomputed)


def _many(x):
    return 10**9


def _few(x):
    return 1.5


def _unit_by_result(grad, result):
    return grad * result


# ---- registering ----


def _of(*names: str) -> Callable[..., Any]:
    """A scripted function with these parameters that returns its first."""
    source = f"def f({', '.join(names)}):\n    return {names[0].split(':')[0]}\n"
    return torch.jit.CompilationUnit(source).f


@pytest.mark.parametrize(
    "op, rule, message",
    [
        ("tanh", {}, 'an operator is named "namespace::name"'),
        ("recompute_rules::nothing", {}, "there is no such operator"),
        ("aten::masked_fill", {}, "there is no such overload; there are aten::masked_fill.Scalar, aten::masked_fill.Tensor$"),
        ("recompute_rules::unit.out", {}, "no such overload; there are recompute_rules::unit"),
        ("aten::add_.Tensor", {}, "it writes to its arguments"),
        ("recompute_rules::half", {"backward": "grad"}, "it returns views of its arguments"),
        ("recompute_rules::unit", {}, "the rule says nothing"),
        ("aten_recompute::mark_layer", {}, "operators of aten_recompute take no rules"),
        ("aten::tanh", {"backward": "grad"}, "aten_recompute has a rule for it already; replace"),
        ("recompute_rules::unit", {"backward": ("grad", "y")}, 'backward has a parameter "y", which is none of .*result'),
        ("recompute_rules::unit", {"backward": ("grad", "eps")}, '"eps" is declared Tensor, but is float'),
        ("recompute_rules::affine", {"backward": {"bias": ("bias",)}}, '"bias" is declared Tensor, but is Optional'),
        ("recompute_rules::affine", {"backward": "grad"}, r"returns 1 values \(Tensor\), expected one gradient for each of x, weight, bias"),
        ("recompute_rules::affine", {"backward": {"w": "grad"}}, 'there is no argument "w"; there are bias, dim'),
        ("recompute_rules::affine", {"backward": {"dim": "grad"}}, 'the argument "dim" is no tensor'),
        ("recompute_rules::affine", {"backward": {"x": "grad", "bias, x": "grad"}}, 'two functions give the gradient of "x"'),
        ("recompute_rules::unit", {"backward": ("eps: float",)}, 'backward returns float as the gradient of "x"'),
        ("recompute_rules::unit", {"forward": "x"}, "a forward without a backward"),
        ("recompute_rules::unit", {"backward": "grad", "extras": ["a"]}, r"extras \(a\) are what a forward returns"),
        ("recompute_rules::unit", {"backward": "grad", "forward": "x", "extras": ["a"]}, r"forward returns \(Tensor\), expected \(Tensor, a\)"),
        ("recompute_rules::unit", {"backward": "grad", "forward": "x", "extras": ["grad"]}, 'an extra cannot be called "grad"'),
        ("recompute_rules::unit", {"backward": "grad", "forward": "result"}, 'forward has a parameter "result"'),
        ("recompute_rules::unit", {"replay": ("eps: float",)}, r"replay returns \(float\), expected \(Tensor\)"),
        ("recompute_rules::unit", {"flops": "x"}, r"flops returns \(Tensor\), expected one int or float"),
    ],
)  # fmt: skip
def test_errors_are_one_line(op: str, rule: Dict[str, Any], message: str) -> None:
    def function(given: Any) -> Any:
        return _of(*given) if isinstance(given, tuple) else _of(given)

    made: Dict[str, Any] = {}
    for role, given in rule.items():
        if isinstance(given, dict):
            made[role] = {arguments: function(each) for arguments, each in given.items()}
        else:
            made[role] = given if role == "extras" else function(given)
    with pytest.raises(ValueError, match=f"^register_rule: {op}: .*{message}") as error:
        register_rule(op, **made)
    assert "\n" not in str(error.value)


def test_a_function_that_writes_in_place() -> None:
    register_rule("recompute_rules::unit", backward=_writes_to_its_own)
    with pytest.raises(ValueError, match="writes in place to something that it did not make"):
        register_rule("recompute_rules::unit", backward=_writes, replace=True)


def _writes_to_its_own(grad, x):
    gradient = grad * x
    gradient.mul_(2)
    return gradient


def _writes(grad):
    return grad.mul_(2)


def test_what_cannot_be_scripted() -> None:
    with pytest.raises(ValueError, match="recompute_rules::unit: backward cannot be scripted: .") as error:
        register_rule("recompute_rules::unit", backward=lambda *gradients: gradients[0])
    assert error.value.__cause__ is not None
    with pytest.raises(TypeError, match="backward is a function, not int"):
        register_rule("recompute_rules::unit", backward=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an operator's name"):
        register_rule(torch.ops.recompute_rules.unit, backward=unit_backward)  # type: ignore[arg-type]


def test_twice() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=_tripled)
    with pytest.raises(ValueError, match="scaled_tanh: it has been given a rule already; replace = true"):
        register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward, replace=True)
    net = Net(Tanh)
    compare(net, lowered_copy(net, "all"))


def _tripled(grad):
    return grad * 3


def test_in_place_of_a_rule_of_ours() -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x)

    def gradient() -> Tensor:
        lowered = lowered_copy(Plain(), "none")
        x = torch.full((3,), 0.5, requires_grad=True)
        lowered(x).sum().backward()
        assert x.grad is not None
        return x.grad

    before = gradient()
    register_rule("aten::tanh", backward=_tripled, replace=True)
    assert torch.equal(gradient(), torch.full((3,), 3.0))
    register_rule("aten::tanh", replace=True)  # says nothing: ours holds again
    assert torch.equal(gradient(), before)


def test_what_has_run_keeps_its_rules() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    net = Net(Tanh)
    before = lowered_copy(net, "all")
    compare(net, before)
    register_rule("recompute_rules::scaled_tanh", backward=_tripled, replace=True)
    # Another set of inputs that require grad: a variant that is compiled now, by the old rule.
    compare(net, before)
    for module in (net, before):
        dict(module.named_parameters())["blocks.0.0.weight"].requires_grad_(False)
    compare(net, before)
    with pytest.raises(AssertionError):
        compare(net, lowered_copy(net, "all"))


class TwoRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Net(Tanh)
        self.second = Net(Tanh)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if bool(x.sum() > -1e9):
            x = x + 1
        return self.second(x)


def test_a_method_planned_after_its_first_call_keeps_its_rules() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    net = TwoRegions()
    lowered = lowered_copy(net, STRATEGIES["budget"])
    compare(net, lowered, steps=1)
    register_rule("recompute_rules::scaled_tanh", replace=True)  # on the tape from now on
    compare(net, lowered, steps=3)
    for region in aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]:
        assert all(each["on_tape"] == [] for each in region["variants"])


# ---- saved modules ----


def _in_another_process(code: str) -> "subprocess.CompletedProcess[str]":
    paths = [str(Path(__file__).parent), str(Path(aten_recompute.__file__).parent.parent)]
    code = f"import sys; sys.path[:0] = {paths!r}\n" + code
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)


def test_a_saved_module_holds_no_rules(tmp_path: Path) -> None:
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    lowered = lowered_copy(Net(Tanh), "all")
    x = torch.rand(6, 8)
    gradients = step(lowered, list(lowered.parameters()), (x,))[1]
    lowered.save(str(tmp_path / "net.pt"))
    torch.save((x, gradients), tmp_path / "expected.pt")
    code = f"""
import torch
import test_register_rule as here
loaded = here.aten_recompute.load({str(tmp_path / "net.pt")!r})
x, gradients = torch.load({str(tmp_path / "expected.pt")!r})
here.assert_same(here.step(loaded, list(loaded.parameters()), (x,))[1], gradients)
print(*here.variant(loaded)["on_tape"])
"""
    result = _in_another_process(code)
    assert result.stdout.split() == ["recompute_rules::scaled_tanh"] * 3, result.stderr
    code = f"import aten_recompute\naten_recompute.load({str(tmp_path / 'net.pt')!r})"
    result = _in_another_process(code)
    assert "Unknown builtin op: recompute_rules::scaled_tanh" in result.stderr
