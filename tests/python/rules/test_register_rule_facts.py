"""What a rule states beside the gradients: what a second run of an operator may do, and what it costs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import register_rule
from support.helpers import lowered_copy, step
from support.user_operators import (
    STRATEGIES,
    Net,
    Noise,
    State,
    Tanh,
    compare,
    noise_backward,
    scaled_tanh_backward,
    state,
    state_backward,
    state_replay,
    variant,
)

pytestmark = pytest.mark.usefixtures("no_rules")


# ---- running again ----


def equal(a: Tensor | None, b: Tensor | None) -> bool:
    assert a is not None
    assert b is not None
    return torch.equal(a, b)


@pytest.mark.parametrize("with_backward", [True, False])
@pytest.mark.parametrize("how", ["replay", "recomputable", "neither"])
def test_replay_and_recomputable_prevent_effects_of_a_second_run(how: str, with_backward: bool) -> None:
    rule: dict[str, Any] = {"backward": state_backward} if with_backward else {}
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
    # Six runs in eager and six first runs in ours. Recomputation adds six if nothing prevents it.
    assert state.item() == 12 + (6 if how == "neither" else 0)


@pytest.mark.parametrize("random", [None, True, False])
def test_a_random_operator_draws_the_same_numbers_again_unless_the_rule_denies_it(random: bool | None) -> None:
    register_rule("recompute_rules::noise", backward=noise_backward, random=random)
    net = Net(Noise)
    gradients = {}
    for strategy in ("none", "all"):
        lowered = lowered_copy(net, strategy)
        gradients[strategy] = step(lowered, list(lowered.parameters()), (torch.ones(6, 8),))[1]
    same = all(equal(a, b) for a, b in zip(gradients["none"], gradients["all"], strict=True))
    assert same == (random is not False)


class OffThePath(nn.Module):
    """The noise needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.ops.recompute_rules.noise(x)
        return torch.sigmoid(self.linear(x)) * noise.sigmoid()


def test_an_operator_without_a_rule_draws_the_same_numbers_again() -> None:
    net = OffThePath()
    gradients = {}
    for strategy in ("none", "all"):
        lowered = lowered_copy(net, strategy)
        gradients[strategy] = step(lowered, list(lowered.parameters()), (torch.ones(6, 8),))[1]
        again = any("noise" in name for name in variant(lowered)["recomputed"])
        assert again == (strategy == "all")
    assert all(equal(a, b) for a, b in zip(gradients["none"], gradients["all"], strict=True))


# ---- the FLOP model ----


def _flops(x, scale: float, result):
    return 7 * x.size(0) * result.size(1) + int(scale)


@pytest.mark.parametrize("with_backward", [True, False])
def test_planning_problems_have_the_flops_of_the_rule(with_backward: bool) -> None:
    rule: dict[str, Any] = {"backward": scaled_tanh_backward} if with_backward else {}
    register_rule("recompute_rules::scaled_tanh", flops=_flops, **rule)
    lowered = lowered_copy(Net(Tanh, depth=1), STRATEGIES["budget"])
    step(lowered, list(lowered.parameters()), (torch.rand(6, 8),))
    (problem,) = aten_recompute.problems(lowered)
    names = ["recompute_rules::scaled_tanh", "aten_recompute::tape_forward"]
    nodes = problem["nodes"]
    assert nodes["flops"][nodes["name"].index(names[not with_backward])] == 7 * 6 * 8 + 1


def test_a_plan_recomputes_operators_that_are_cheap_by_their_rules() -> None:
    """All activations have one size, and the budget has room for most of them."""

    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a = torch.ops.recompute_rules.scaled_tanh(x, 1.5)
            b = torch.ops.recompute_rules.unit(a, 1e-3)
            return torch.ops.recompute_rules.scaled_tanh(b, 1.5)

    for cheap, expensive in (("scaled_tanh", "unit"), ("unit", "scaled_tanh")):
        backward: dict[str, Any] = {"scaled_tanh": scaled_tanh_backward, "unit": _unit_by_result}
        for name, flops in ((cheap, _few), (expensive, _many)):
            register_rule(f"recompute_rules::{name}", backward=backward[name], flops=flops, replace=True)
        net = nn.Sequential(Two(), Two(), Two(), Two())
        lowered = lowered_copy(net, "budget", memory_budget=0.9, cost_model="flops")
        lowered(torch.rand(64, 64, requires_grad=True)).sum().backward()
        recomputed = variant(lowered)["recomputed"]
        assert recomputed
        assert all(name.startswith(cheap) for name in recomputed)


def _many(x):
    return 10**9


def _few(x):
    return 1.5


def _unit_by_result(grad, result):
    return grad * result
