"""A hundred random programs equal eager; ``make fuzz`` runs more."""

import os
from collections import Counter
from collections.abc import Callable

import pytest

pytest.importorskip("hypothesis", reason="draws the programs")

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

from . import check_modules, norms
from .check import (
    check,
    difference,
    function_of,
    raises_for_unread_gradients,
    raises_in_dead_code,
    run,
    shares,
)
from .modules import Model, loops, models
from .programs import Program, programs

COUNT = int(os.environ.get("FUZZ_COUNT", "120"))
SEED = int(os.environ.get("FUZZ_SEED", "2"))


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("under_autocast", [False, True])
def test_no_random_program_differs_from_eager(under_autocast: bool) -> None:
    """In addition, most programs have to be compared, so that the fuzzer sees something."""
    reasons: Counter = Counter()

    @seed(SEED)
    @settings(max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs(under_autocast))
    def every(program: Program) -> None:
        reasons[check(program)] += 1

    every()
    assert reasons[""] > 0.6 * sum(reasons.values()), shares(reasons)


def test_no_program_of_gradients_differs_from_eager() -> None:
    """About a third raises in eager, too: a gradient of what requires none, or of a graph that is freed."""
    reasons: Counter = Counter()

    @seed(SEED)
    @settings(max_examples=max(1, COUNT // 3), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs(of_gradients=True))
    def every(program: Program) -> None:
        reasons[check(program)] += 1

    every()
    assert reasons[""] > 0.3 * sum(reasons.values()), shares(reasons)


def test_no_network_of_norms_differs_from_eager() -> None:
    reasons: Counter = Counter()

    @seed(SEED)
    @settings(max_examples=max(1, COUNT // 3), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(norms.networks())
    def every(network: norms.Network) -> None:
        reasons[norms.check(network)] += 1

    every()
    assert reasons[""] > 0.6 * sum(reasons.values()), shares(reasons)


@pytest.mark.parametrize(
    "draw", [models, loops, lambda: models(under_autocast=True)], ids=["models", "loops", "autocast"]
)
def test_no_module_differs_from_eager(draw: Callable[[], SearchStrategy[Model]]) -> None:
    """Most modules have to be compared in all of their calls."""
    reasons: Counter = Counter()

    @seed(SEED)
    @settings(max_examples=max(1, COUNT // 4), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(draw())
    def every(model: Model) -> None:
        reasons[check_modules.check(model)] += 1

    every()
    assert reasons[""] > 0.6 * sum(reasons.values()), shares(reasons)


def test_no_layout_differs_from_eager() -> None:
    reasons: Counter = Counter()

    @seed(SEED)
    @settings(max_examples=max(1, COUNT // 4), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(norms.layouts())
    def every(network: norms.Network) -> None:
        reasons[norms.check(network)] += 1

    every()
    assert reasons[""] > 0.6 * sum(reasons.values()), shares(reasons)


def test_programs_that_differ_in_a_gradient_only_are_told_apart() -> None:
    source = "def program(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor]:\n    return ({},)\n"
    shapes, needs = [(2, 2)] * 3, [True, False, False]
    results = [
        run(function_of(program), program)
        for program in (Program(source.format(text), shapes, needs) for text in ("a * b", "a.detach() * b + a * 0.0"))
    ]
    assert difference(results[0], results[0]) == ""
    assert "tensor 2 differs" in difference(results[1], results[0])
    assert "tensor 2 differs" in difference(results[1]._replace(sums_outside=False), results[0])


def test_code_that_raises_may_be_left_out_if_its_result_is_not_read() -> None:
    """``view`` raises in a loop that TorchScript removes after unrolling it, unless its result is read."""
    body = [
        "def program(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor]:",
        "    v1 = a * 0.5",
        "    v2 = a.t()",
        "    if a.sum() > 0:",
        "        for i in range(2):",
        "            v3 = v2 * 1.25",
        "            v3.view(-1)[2:4].zero_()",
        "            v1 = torch.relu(v3) * 0.5 + v1 * 0.25",
        "    return ({},)",
        "",
    ]
    dead, read = (Program("\n".join(body).format(name), [(2, 2)] * 3, [False, False, True]) for name in ("a", "v1"))
    assert "view size is not compatible" in str(run(function_of(dead), dead).error)
    assert raises_in_dead_code(dead)
    assert not raises_in_dead_code(read)
    check(dead)
    check(read)


def test_a_gradient_that_raises_may_be_left_out_if_the_path_does_not_read_it() -> None:
    body = [
        "def program(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor]:",
        "    g = torch.autograd.grad([(b * 2.0).sum()], [b], allow_unused=True)[0]",
        "    v = a * 0.5",
        "    if {}:",
        "        if g is not None:",
        "            v = v + g",
        "    return (v,)",
        "",
    ]
    never, always = (
        Program("\n".join(body).format(path), [(2, 2)] * 3, [True, False, False])
        for path in ("bool(a.square().sum() < 0)", "bool(a.square().sum() >= 0)")
    )
    assert "does not require grad" in str(run(function_of(never), never).error)
    assert raises_for_unread_gradients(never)
    assert not raises_for_unread_gradients(always)
    check(never)
    check(always)
