"""Operators with an effect run even if nothing reads their results: norms in training, random numbers."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aten_recompute
from support.helpers import saved_and_loaded

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "min_cut": {"strategy": "min_cut"},
    "budget": {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest"},
    "flops": {"strategy": "budget", "memory_budget": 0.9, "unreachable": "leanest", "cost_model": "flops"},
}


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.n = nn.BatchNorm1d(6)
        self.m = nn.BatchNorm1d(6)
        self.i = nn.InstanceNorm1d(6, affine=True, track_running_stats=True)


class Dead(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        self.n(h)
        return self.m(h)


class Exit(Base):
    """An early exit and a main branch, of which one is used."""

    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        leaves, main = torch.tanh(self.n(h)), torch.relu(self.m(h))
        if early:
            main = leaves
        return main


class FromTheConstructor(Base):
    def __init__(self) -> None:
        super().__init__()
        self.warm = True

    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        y = self.n(h)
        z = self.m(h)
        return y if self.warm else z


class InstanceNorm(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = torch.tanh(self.a(x))
        unread = self.i(h.unsqueeze(0).transpose(1, 2)) * 2
        return h * 3


class Activation(Base):
    """What reads the norm is fused with it."""

    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = torch.tanh(self.a(x))
        unread = torch.relu(self.n(h))
        return h * 3


class Loop(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        for k in range(3):
            last = self.n(h * k)
        return torch.sin(h)


class InTheBranchOfData(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        if bool(x.sum() > -1000):
            unread = self.n(h)
        return torch.sin(h)


class Dropout(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        unread = F.dropout(h, 0.4, self.training)
        return F.dropout(h, 0.3, self.training)


class DropoutBehindOneThatIsRead(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = F.dropout(torch.tanh(self.a(x)), 0.4, self.training)
        unread = F.dropout(h, 0.4, self.training)
        if early:
            h = unread
        return h * 2


class Alone(Base):
    """No result of the region is read."""

    def forward(self, x: Tensor, early: bool) -> Tensor:
        self.n(self.a(x))
        return x


class Functional(Base):
    """Whether the norm is in training is an input."""

    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = self.a(x)
        y = F.batch_norm(h, self.n.running_mean, self.n.running_var, self.n.weight, self.n.bias, not early)
        return torch.sin(h)


MODULES: list[type[Base]] = [
    Dead, Exit, FromTheConstructor, InstanceNorm, Activation, Loop, InTheBranchOfData, Dropout,
    DropoutBehindOneThatIsRead, Alone, Functional,
]  # fmt: skip


def steps(module: nn.Module) -> list[Tensor | None]:
    torch.manual_seed(1)
    seen: list[Tensor | None] = []
    for early, training, grad in [
        (False, True, True), (True, True, True), (False, False, True), (False, True, False), (False, True, True),
    ]:  # fmt: skip
        module.train(training)
        module.zero_grad()
        x = (torch.randn(5, 6) + 1).requires_grad_()
        with torch.set_grad_enabled(grad):
            y = module(x, early)
        if grad:
            y.pow(2).sum().backward()
        seen += [y.detach(), x.grad, *(p.grad for p in module.parameters())]
        seen += [b.clone() for b in module.buffers()] + [torch.get_rng_state()]
    return seen


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
@pytest.mark.lowered_only
def test_what_nothing_reads_has_its_effects(module: type[Base], strategy: str) -> None:
    torch.manual_seed(0)
    eager = module()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), STRATEGIES[strategy])
    loaded = saved_and_loaded(aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), STRATEGIES[strategy]))
    expected = steps(eager)
    for ours in (lowered, loaded):
        for number, (a, b) in enumerate(zip(expected, steps(ours), strict=True)):
            assert (a is None) == (b is None), number
            if a is not None and b is not None:
                assert torch.equal(a, b), number


def test_a_norm_in_evaluation_that_nothing_reads_does_not_run() -> None:
    lowered = aten_recompute.lower(torch.jit.script(Dead().eval()), {"strategy": "none", "profile": True})
    lowered(torch.randn(5, 6), False).sum().backward()
    names = aten_recompute.problems(lowered)[0]["nodes"]["name"]
    assert sum("batch_norm" in name and "backward" not in name for name in names) == 1


library = torch.library.Library("unread_results", "DEF")
runs: list[str] = []


def counted(x: Tensor) -> Tensor:
    runs.append("counted")
    return x * 2


library.define("counted(Tensor x) -> Tensor")
library.impl("counted", counted, "CPU")


class OwnOperator(Base):
    def forward(self, x: Tensor, early: bool) -> Tensor:
        h = torch.sin(x)
        unread = torch.ops.unread_results.counted(h)  # torch.jit.script would remove it if nothing could read it
        return unread if early else h * 3


@pytest.mark.parametrize("strategy", ["none", "segments", "min_cut"])
def test_operators_of_other_libraries_run(strategy: str) -> None:
    lowered = aten_recompute.lower(torch.jit.script(OwnOperator()), strategy)
    lowered(torch.randn(3, requires_grad=True), False).sum().backward()
    runs.clear()
    lowered(torch.randn(3, requires_grad=True), False).sum().backward()
    assert runs == ["counted"]
