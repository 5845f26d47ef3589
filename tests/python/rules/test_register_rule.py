"""Rules that users register: gradients equal those of eager, which differentiates by formulas of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import register_rule
from support.helpers import assert_same, lowered_copy, step
from support.user_operators import (
    AFFINE,
    CASES,
    STRATEGIES,
    Affine,
    Net,
    Tanh,
    Thirds,
    Unit,
    Weighted,
    affine_bias,
    affine_weight,
    calls,
    compare,
    scaled_tanh_backward,
    thirds_backward,
    unit_backward,
    variant,
    weighted_backward,
)

STRATEGY = pytest.mark.parametrize("strategy", STRATEGIES)
CASE = pytest.mark.parametrize("case", CASES)
pytestmark = pytest.mark.usefixtures("no_rules")


# ---- gradients ----


@STRATEGY
@CASE
def test_gradients_with_a_rule_equal_eager(strategy: str, case: str) -> None:
    name, make, rule = CASES[case]
    register_rule(f"recompute_rules::{name}", **rule)
    net = Net(make)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    compare(net, lowered)
    assert variant(lowered)["on_tape"] == []


@STRATEGY
@CASE
def test_an_operator_without_a_rule_is_differentiated_by_autograd(strategy: str, case: str) -> None:
    name, make, _ = CASES[case]
    net = Net(make)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    compare(net, lowered)
    assert variant(lowered)["on_tape"] == [f"recompute_rules::{name}"] * 3


@pytest.mark.parametrize("with_rule", [True, False])
def test_an_operator_with_or_without_a_rule_can_be_recomputed(with_rule: bool) -> None:
    if with_rule:
        register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    net = Net(Tanh)
    for strategy, runs in (("none", 3), ("all", 6)):
        lowered = lowered_copy(net, strategy)
        calls.clear()
        compare(net, lowered, steps=1)
        assert len(calls) - 3 == runs  # without those of eager


@STRATEGY
def test_a_rule_may_return_the_gradients_of_a_list(strategy: str) -> None:
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


@STRATEGY
def test_a_rule_may_take_the_gradients_of_a_list(strategy: str) -> None:
    class Eager(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            # Copies as those of the operator: sigmoid has another kernel, and so other bits, where strides are not 1.
            parts = [part.clone() for part in x.split([3, 3, 2], -1)]
            return torch.cat([parts[2], parts[0].sigmoid(), parts[0]], -1)

    register_rule("recompute_rules::thirds", backward=thirds_backward)
    net = Net(Thirds)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    eager = Net(Eager)
    eager.load_state_dict(net.state_dict())
    compare(eager, lowered)
    assert variant(lowered)["on_tape"] == []


@STRATEGY
@pytest.mark.parametrize("with_rule", [True, False])
def test_operators_of_torch_library_custom_op_work_with_and_without_a_rule(strategy: str, with_rule: bool) -> None:
    if with_rule:
        register_rule("recompute_rules::custom", backward=_custom_backward, replace=True)
    net = Net(Custom)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    compare(net, lowered)
    assert variant(lowered)["on_tape"] == ([] if with_rule else ["recompute_rules::custom"] * 3)


def _custom_backward(grad, x):
    return grad * x * 2


@torch.library.custom_op("recompute_rules::custom", mutates_args=())
def custom(x: Tensor) -> Tensor:
    return x * x


custom.register_autograd(
    lambda ctx, grad: grad * ctx.saved_tensors[0] * 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Custom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.recompute_rules.custom(x)


def test_only_gradients_that_are_asked_for_are_computed() -> None:
    """If the weight is frozen, nothing reads the operator's input in the backward, so it is not saved."""
    register_rule("recompute_rules::affine", backward=AFFINE)
    net = Net(lambda: Affine(True, "first"), depth=1)
    for frozen in (False, True):
        net.blocks[0][1].weight.requires_grad_(not frozen)
        lowered = lowered_copy(net, "none")
        compare(net, lowered, steps=1)
        assert ("linear_0" in " ".join(variant(lowered)["saved"])) == (not frozen)


def test_branches_on_needs_cost_nothing_at_run_time() -> None:
    def backward(grad, x, weight, grad1: Tensor | None, needs_weight: bool):
        weights: Tensor | None = None
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


def test_the_gradient_of_an_unused_output_is_zeros_or_none() -> None:
    """Only the second output is used, so the first one has no gradient."""
    register_rule("recompute_rules::affine", backward=AFFINE)
    net = Net(lambda: Affine(True, "second"), depth=1)
    lowered = lowered_copy(net, "none")
    x = torch.randn(6, 8)
    lowered(x).sum().backward()
    net(x).sum().backward()
    inner, eager = dict(lowered.named_parameters()), dict(net.named_parameters())
    assert_same([inner["blocks.0.0.weight"].grad], [eager["blocks.0.0.weight"].grad])
    bias = inner["blocks.0.1.bias"].grad
    assert bias is not None
    assert torch.equal(bias, torch.zeros(8))


def test_gradients_are_summed_and_cast_to_the_argument() -> None:
    def backward(grad, x, weight):
        return grad.double() * weight, grad * x, grad

    register_rule("recompute_rules::affine", backward=backward)
    net = Net(lambda: Affine(True, "first"), depth=1)
    compare(net, lowered_copy(net, "all"))


def test_a_gradient_of_a_wrong_shape_raises() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=_halved)
    lowered = lowered_copy(Net(Tanh, depth=1), "none")
    output = lowered(torch.rand(6, 8))
    with pytest.raises(RuntimeError, match=r"scaled_tanh: the gradient of x has sizes \[6, 4\], but .* \[6, 8\]"):
        output.sum().backward()


def _halved(grad):
    return grad[:, :4]


@pytest.mark.parametrize("how", ["scripted", "traced"])
def test_functions_may_be_scripted_or_traced_before(how: str) -> None:
    ones = torch.ones(6, 8)
    if how == "scripted":
        backward: Any = torch.jit.script(scaled_tanh_backward)
    else:
        backward = torch.jit.trace(lambda grad, result: grad * (1.7 - result * result / 1.7), (ones, ones))
    register_rule("recompute_rules::scaled_tanh", backward=backward)
    net = Net(Tanh)
    compare(net, lowered_copy(net, "all"))


# ---- registering ----


def _of(*names: str) -> Callable[..., Any]:
    """Returns a scripted function with these parameters that returns the first of them."""
    source = f"def f({', '.join(names)}):\n    return {names[0].split(':')[0]}\n"
    function: Callable[..., Any] = torch.jit.CompilationUnit(source).f
    return function


@pytest.mark.parametrize(
    ("op", "rule", "message"),
    [
        ("tanh", {}, 'an operator is named "namespace::name"'),
        ("recompute_rules::nothing", {}, "there is no such operator"),
        ("aten::masked_fill", {},
         "there is no such overload; there are aten::masked_fill.Scalar, aten::masked_fill.Tensor$"),
        ("recompute_rules::unit.out", {}, "no such overload; there are recompute_rules::unit"),
        ("aten::add_.Tensor", {}, "it writes to its arguments"),
        ("recompute_rules::half", {"backward": "grad"}, "it returns views of its arguments"),
        ("recompute_rules::unit", {}, "the rule is empty"),
        ("aten_recompute::mark_layer", {}, "operators of aten_recompute take no rules"),
        ("aten::tanh", {"backward": "grad"}, "aten_recompute has a rule for it already; replace"),
        ("recompute_rules::unit", {"backward": ("grad", "y")},
         'backward has a parameter "y", which is none of .*result'),
        ("recompute_rules::unit", {"backward": ("grad", "eps")}, '"eps" is declared Tensor, but is float'),
        ("recompute_rules::affine", {"backward": {"bias": ("bias",)}}, '"bias" is declared Tensor, but is Optional'),
        ("recompute_rules::affine", {"backward": "grad"},
         r"returns 1 values \(Tensor\), expected one gradient for each of x, weight, bias"),
        ("recompute_rules::affine", {"backward": {"w": "grad"}}, 'there is no argument "w"; there are bias, dim'),
        ("recompute_rules::affine", {"backward": {"dim": "grad"}}, 'the argument "dim" is not a tensor'),
        ("recompute_rules::affine", {"backward": {"x": "grad", "bias, x": "grad"}},
         'two functions give the gradient of "x"'),
        ("recompute_rules::unit", {"backward": ("eps: float",)}, 'backward returns float as the gradient of "x"'),
        ("recompute_rules::unit", {"forward": "x"}, "a forward without a backward"),
        ("recompute_rules::unit", {"backward": "grad", "extras": ["a"]}, r"extras \(a\) are returned by a forward"),
        ("recompute_rules::unit", {"backward": "grad", "forward": "x", "extras": ["a"]},
         r"forward returns \(Tensor\), expected \(Tensor, a\)"),
        ("recompute_rules::unit", {"backward": "grad", "forward": "x", "extras": ["grad"]},
         'an extra cannot be called "grad"'),
        ("recompute_rules::unit", {"backward": "grad", "forward": "result"}, 'forward has a parameter "result"'),
        ("recompute_rules::unit", {"replay": ("eps: float",)}, r"replay returns \(float\), expected \(Tensor\)"),
        ("recompute_rules::unit", {"flops": "x"}, r"flops returns \(Tensor\), expected one int or float"),
    ],
)  # fmt: skip
def test_an_invalid_rule_raises_one_line(op: str, rule: dict[str, Any], message: str) -> None:
    def function(given: Any) -> Any:
        return _of(*given) if isinstance(given, tuple) else _of(given)

    made: dict[str, Any] = {}
    for role, given in rule.items():
        if isinstance(given, dict):
            made[role] = {arguments: function(each) for arguments, each in given.items()}
        else:
            made[role] = given if role == "extras" else function(given)
    with pytest.raises(ValueError, match=f"^register_rule: {op}: .*{message}") as error:
        register_rule(op, **made)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("function", ["_writes", "_writes_to_a_view"])
def test_a_function_must_not_write_to_its_arguments(function: str) -> None:
    with pytest.raises(ValueError, match='backward writes to its parameter "grad", or to what may be a view of it'):
        register_rule("recompute_rules::unit", backward=globals()[function])


def _writes(grad):
    return grad.mul_(2)


def _writes_to_a_view(grad):
    gradient = grad.contiguous()
    gradient[0] = 0
    return gradient


@STRATEGY
@pytest.mark.parametrize("slices", [True, False])
def test_a_backward_may_write_to_tensors_that_it_made(strategy: str, slices: bool) -> None:
    backward: Any = _fills_slices if slices else _multiplies
    functions = {"weight": affine_weight, "bias": affine_bias, "x": backward}
    register_rule("recompute_rules::affine", backward=functions)
    net = Net(lambda: Affine(True, "first"))
    compare(net, lowered_copy(net, STRATEGIES[strategy]))


def _fills_slices(grad, weight):
    gradient = torch.zeros_like(grad)
    for i in range(grad.size(0)):
        gradient[i, :4] = grad[i, :4] * weight[:4]
        gradient[i, 4:].copy_(grad[i, 4:] * weight[4:])
    return gradient


def _multiplies(grad, weight):
    gradient = grad.clone()
    gradient.mul_(weight)
    return gradient


def _fills_forward(x, eps: float, needs_x: bool):
    y = torch.empty_like(x)
    inverses: list[Tensor] = []
    if needs_x:
        for i in range(x.size(0)):
            inverses.append((x[i].square().sum(-1, True) + eps).rsqrt())
            y[i] = x[i] * inverses[i]
    return y, torch.stack(inverses)


@STRATEGY
def test_a_forward_may_write_to_tensors_that_it_made(strategy: str) -> None:
    register_rule("recompute_rules::unit", backward=unit_backward, forward=_fills_forward, extras=["inverse"])
    net = Net(Unit)
    compare(net, lowered_copy(net, STRATEGIES[strategy]))


def test_a_function_that_cannot_be_scripted_raises() -> None:
    with pytest.raises(ValueError, match=r"recompute_rules::unit: backward cannot be scripted: .") as error:
        register_rule("recompute_rules::unit", backward=lambda *gradients: gradients[0])
    assert error.value.__cause__ is not None
    with pytest.raises(TypeError, match="backward is a function, not int"):
        register_rule("recompute_rules::unit", backward=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an operator's name"):
        register_rule(torch.ops.recompute_rules.unit, backward=unit_backward)  # type: ignore[arg-type]


def test_a_second_rule_needs_replace() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=_tripled)
    with pytest.raises(ValueError, match="scaled_tanh: it has been given a rule already; replace = true"):
        register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward, replace=True)
    net = Net(Tanh)
    compare(net, lowered_copy(net, "all"))


def _tripled(grad):
    return grad * 3


def test_a_built_in_rule_can_be_replaced_and_restored() -> None:
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
    register_rule("aten::tanh", replace=True)  # without a function, the built-in rule is restored
    assert torch.equal(gradient(), before)


def test_a_method_that_has_run_keeps_its_rules() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    net = Net(Tanh)
    before = lowered_copy(net, "all")
    compare(net, before)
    register_rule("recompute_rules::scaled_tanh", backward=_tripled, replace=True)
    # Another set of inputs that require grad needs another variant, which is compiled now, with the old rule.
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


def test_a_method_that_is_planned_again_keeps_its_rules() -> None:
    register_rule("recompute_rules::scaled_tanh", backward=scaled_tanh_backward)
    net = TwoRegions()
    lowered = lowered_copy(net, STRATEGIES["budget"])
    compare(net, lowered, steps=1)
    register_rule("recompute_rules::scaled_tanh", replace=True)  # on the tape from now on
    compare(net, lowered, steps=3, rows=12)  # larger inputs need a plan of their own
    for region in aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]:
        assert len(region["variants"]) > 1
        assert all(each["on_tape"] == [] for each in region["variants"])


# ---- saved modules ----


def _in_another_process(code: str) -> "subprocess.CompletedProcess[str]":
    """Runs the code in a process that can import this module, the package and ``support``."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), str(Path(aten_recompute.__file__).parent.parent)]
    code = f"import sys; sys.path[:0] = {paths!r}\n" + code
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)


def test_a_saved_module_contains_no_rules(tmp_path: Path) -> None:
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
