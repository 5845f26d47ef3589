"""Operators and modules of PyTorch, spread over its lists, equal eager; ``make conformance`` runs them all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("expecttest", reason="torch.testing's lists need it")

from . import numerical, second_order, table
from .cases import REDUCED_DTYPES, Sample, entries
from .compare import SAME, Mode, outcomes_of
from .exceptions import (
    AUTOCAST_EXCEPTIONS,
    EXCEPTIONS,
    NUMERICAL_EXCEPTIONS,
    REDUCED_EXCEPTIONS,
    SECOND_ORDER_EXCEPTIONS,
)
from .worker import CRASHED, Worker

EVERY = 13  # one of so many entries runs here
SAMPLES = 2  # of each dtype

# Each of these differed from eager at some time.
HAVE_FAILED = [
    "__rpow__", "addcdiv", "baddbmm", "cummax", "diff", "frexp", "fill", "kthvalue", "linalg.lu_factor", "masked.var",
    "native_batch_norm", "nn.BatchNorm1d (train)", "nn.GRUCell (train)", "nn.LSTMCell (eval)",
    "nn.functional.batch_norm", "nn.functional.conv1d", "nn.functional.hinge_embedding_loss",
    "nn.functional.pad.circular", "norm", "ormqr", "pow", "quantile", "sgn", "svd_lowrank", "zero_",
]  # fmt: skip

BY_NAME = {entry.name: entry for entry in entries()}
REDUCED = {entry.name: entry for entry in entries(REDUCED_DTYPES)}
TWICE = {name: entry for name, entry in BY_NAME.items() if entry.twice}
SECOND_ORDER_SPREAD = sorted({*list(TWICE)[5 :: 2 * EVERY]} - set(SECOND_ORDER_EXCEPTIONS))
SPREAD = sorted({*list(BY_NAME)[::EVERY], *HAVE_FAILED} - set(EXCEPTIONS))
SINGLE = {entry.name: entry for entry in entries((torch.float32,))}
# The first ones had another type, or raised, at some time.
AUTOCAST_SPREAD = sorted(
    {"nn.Conv1d (train)", "nn.ConvTranspose3d (eval)", "sparse.sampled_addmm", *list(SINGLE)[7 :: 2 * EVERY]}
    - set(AUTOCAST_EXCEPTIONS)
)
BOUNDS = {entry.name: entry for entry in entries((*REDUCED_DTYPES, torch.float32, torch.float64)) if entry.is_of_bounds}
NUMERICAL = {entry.name: entry for entry in entries((torch.float64,), numerical=True)}
REDUCED_SPREAD = sorted({*list(REDUCED)[3::EVERY], "nn.GRUCell (train)"} - set(REDUCED_EXCEPTIONS) - set(BOUNDS))


@pytest.mark.parametrize("name", SPREAD)
def test_entry_equals_eager(name: str) -> None:
    outcomes = list(outcomes_of(BY_NAME[name], SAMPLES))
    assert outcomes
    assert table.row(name, outcomes)["details"] == []


@pytest.mark.parametrize("name", REDUCED_SPREAD)
def test_entry_equals_eager_in_reduced_types(name: str) -> None:
    outcomes = list(outcomes_of(REDUCED[name], SAMPLES))
    assert outcomes
    assert table.row(name, outcomes)["details"] == []


@pytest.mark.parametrize("name", AUTOCAST_SPREAD)
def test_entry_equals_eager_under_autocast(name: str) -> None:
    outcomes = list(outcomes_of(SINGLE[name], SAMPLES, Mode(autocast=torch.bfloat16)))
    assert outcomes
    assert table.row(name, outcomes)["details"] == []


@pytest.mark.parametrize("name", BOUNDS)
def test_arguments_on_bounds_give_the_gradients_of_eager(name: str) -> None:
    outcomes = list(outcomes_of(BOUNDS[name], SAMPLES))
    assert table.row(name, outcomes)["details"] == []
    assert any(outcome.result == SAME for _, outcome in outcomes)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_a_listed_exception_still_fails(name: str) -> None:
    assert any(outcome.result == EXCEPTIONS[name].result for _, outcome in outcomes_of(BY_NAME[name]))


def test_at_most_one_entry_in_a_hundred_is_an_exception() -> None:
    numerical = [(NUMERICAL_EXCEPTIONS[order], NUMERICAL) for order in (1, 2)]
    for exceptions, found in (
        (EXCEPTIONS, BY_NAME),
        (REDUCED_EXCEPTIONS, REDUCED),
        (SECOND_ORDER_EXCEPTIONS, TWICE),
        *numerical,
    ):
        assert set(exceptions) <= set(found)
        assert len(exceptions) <= len(found) / 100


@pytest.mark.parametrize("name", SECOND_ORDER_SPREAD)
def test_second_derivatives_equal_eager(name: str) -> None:
    outcomes = list(outcomes_of(TWICE[name], SAMPLES, Mode(order=2)))
    assert outcomes
    assert table.row(name, outcomes, exceptions=SECOND_ORDER_EXCEPTIONS)["details"] == []


@pytest.mark.parametrize("name", SECOND_ORDER_EXCEPTIONS)
def test_a_listed_exception_of_second_derivatives_still_fails(name: str) -> None:
    allowed = SECOND_ORDER_EXCEPTIONS[name].result
    assert any(outcome.result == allowed for _, outcome in outcomes_of(TWICE[name], 3, Mode(order=2)))


def test_a_wrong_second_derivative_is_found() -> None:
    """Two functions have the same value and first derivative at a point; their second derivatives differ."""
    results = []
    for function in (lambda x: x * x * x, lambda x: x * x * x + (x - x.detach()).square()):
        x = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64, requires_grad=True)
        cotangent = torch.ones(5, dtype=torch.float64)
        results.append(second_order.derivatives([function(x)], [x], [cotangent], torch.Generator().manual_seed(1)))
    (first, second), (same_first, other_second) = results
    for gradient, same_gradient in zip(first, same_first, strict=True):
        torch.testing.assert_close(gradient, same_gradient, rtol=0.0, atol=0.0)
    assert second_order.difference(second, second) == ""
    assert "second derivative 0 of 2: differs" in second_order.difference(other_second, second)


# One whose matrix has to be symmetric, modules, an operator with a rule, one on the tape, and one that is random.
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["linalg.cholesky", "nn.Linear (train)", "mul", "cumprod", "nn.functional.dropout"])
def test_gradcheck_accepts_gradients(name: str, order: int) -> None:
    outcomes = list(outcomes_of(NUMERICAL[name], SAMPLES, Mode(order=order, numerical=True)))
    assert table.row(name, outcomes)["details"] == []
    assert any(outcome.result == SAME for _, outcome in outcomes)


class _Wrong(torch.autograd.Function):
    """A square whose first or second derivative is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.order = order
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradients[0] * (3 * x if ctx.order == 1 else 2 * x.detach()), None


@pytest.mark.parametrize("order", [1, 2])
def test_gradcheck_refuses_a_wrong_gradient(order: int) -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (_Wrong.apply(x, order),)

    x = torch.linspace(0.5, 1.0, 4, dtype=torch.float64).requires_grad_()
    sample = Sample("", Square(), [x])
    assert "Jacobian mismatch" in numerical.why_wrong(sample.module, sample, order)


def test_a_crash_is_a_failed_entry_and_the_next_one_runs() -> None:
    worker = Worker(limit=1)
    worker._process.kill()
    outcomes = worker.run("add")
    assert [outcome.result for _, outcome in outcomes] == [CRASHED]
    assert table.verdict("add", outcomes) == table.FAILS
    assert table.verdict("add", worker.run("add")) == table.PASSES
    worker.close()
