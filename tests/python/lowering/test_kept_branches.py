"""What a branch that data decide returns requires a gradient in just the calls in which it does in eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, saved_and_loaded

Outputs = dict[str, Tensor]


class OneBranch(nn.Module):
    """Each block returns one result that requires a gradient and one that requires none."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Outputs:
        h = self.layer(y)
        if bool(x.sum() > 0):
            a, b = torch.tanh(h), x * 2
        else:
            a, b = x * 3, h * x
        return {"a": a, "b": b, "a_later": torch.relu(a) * 2, "both": torch.sin(a) + b, "h": torch.cos(h)}


class BranchAfterBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Outputs:
        h = torch.tanh(self.layer(y))
        if bool(x.sum() > 0):
            a = h * 2
        else:
            a = x * 2
        if bool(x[0].sum() > 0):
            b, c = torch.sin(a), torch.relu(x)
        else:
            b, c = torch.relu(x), torch.sin(a) * h
        return {"a": a.transpose(0, 1), "b": b, "b_later": b.exp() * a, "c": c, "c_part": c[1:] * 2}


def inputs(total: float, first: float) -> tuple[Tensor, Tensor]:
    """Returns x, whose sum and whose first row's sum have these signs, and y."""
    x = torch.rand(3, 4)
    x[0] *= first
    x[1:] *= 9 * total
    return x, torch.randn(3, 4)


def calls() -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    signs = [(1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0)]
    return [inputs(total, first) for total, first in signs]


def trained(module: nn.Module, x: Tensor, y: Tensor, chosen: tuple[str, ...] = ()) -> list[Tensor | None]:
    """Returns outputs and gradients; the loss is of all outputs, or of the chosen ones where they require grad."""
    module.zero_grad(set_to_none=True)
    y = y.clone().requires_grad_()
    outputs = module(x, y)
    assert all(each.requires_grad == (each.grad_fn is not None) for each in outputs.values())
    losses = [(each * each).sum() for name, each in outputs.items() if not chosen or name in chosen]
    if any(loss.requires_grad for loss in losses):
        torch.stack(losses).sum().backward()
    flags = torch.tensor([each.requires_grad for each in outputs.values()])
    return [flags, *outputs.values(), y.grad, *(p.grad for p in module.parameters())]


def is_one_operator(lowered: torch.jit.ScriptModule) -> bool:
    specialization = aten_recompute.report(lowered)["methods"][0]["specialisations"][-1]
    return any("aten_recompute::branch" in each["on_tape"] for each in specialization["regions"][0]["variants"])


@pytest.mark.parametrize("chosen", [(), ("a", "b"), ("a",), ("both", "c")], ids=["all", "a_and_b", "a", "both_and_c"])
@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "none"},
        {"strategy": "all"},
        {"strategy": "min_cut"},
        {"strategy": "budget", "memory_budget": 0.9, "unreachable": "leanest"},
        {"strategy": "none", "exact": False},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("make", [OneBranch, BranchAfterBranch])
def test_results_require_grad_where_those_of_eager_do(
    make: Callable[[], nn.Module], options: dict[str, Any], chosen: tuple[str, ...], one_thread: None
) -> None:
    eager = make()
    lowered = lowered_copy(eager, options)
    for x, y in calls():
        assert_same(trained(lowered, x, y, chosen), trained(eager, x, y, chosen))
    assert is_one_operator(lowered)
    loaded = saved_and_loaded(lowered)
    for x, y in calls():
        assert_same(trained(loaded, x, y, chosen), trained(eager, x, y, chosen))


def test_a_backward_of_what_requires_no_grad_raises_as_in_eager() -> None:
    lowered = lowered_copy(OneBranch(), "none")
    for x, y in calls():
        output = lowered(x, y)["a"]
        if bool(x.sum() > 0):
            output.sum().backward()
        else:
            with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
                output.sum().backward()
            output.add_(1)  # nothing reads it in a backward


def test_second_derivatives_through_such_results() -> None:
    eager = OneBranch().double()
    lowered = lowered_copy(eager, "none")
    for x, y in calls():
        found = []
        for module in (lowered, eager):
            leaf = y.double().requires_grad_()
            outputs = module(x.double(), leaf)
            (gradient,) = torch.autograd.grad((outputs["both"] ** 2).sum(), leaf, create_graph=True)
            found.append(torch.autograd.grad((gradient**2).sum(), leaf)[0])
        torch.testing.assert_close(*found)


class LayerAfterBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = OneBranch()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Outputs:
        outputs = self.inner(x, y)
        outputs["last"] = self.layer(outputs["a"])
        return outputs


def test_a_layer_behind_it_gets_gradients_in_every_call(one_thread: None) -> None:
    eager = LayerAfterBranch()
    lowered = lowered_copy(eager, "none")
    for x, y in calls():
        assert_same(trained(lowered, x, y, ("last",)), trained(eager, x, y, ("last",)))
