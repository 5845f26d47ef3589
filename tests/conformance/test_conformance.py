"""A sample of PyTorch's operators and modules, spread out; ``make conformance`` runs them all."""

import pytest

pytest.importorskip("expecttest", reason="torch.testing's lists need it")

from . import table  # noqa: E402
from .cases import entries
from .compare import outcomes_of
from .exceptions import EXCEPTIONS
from .worker import CRASHED, Worker

EVERY = 13  # of the entries that run here
SAMPLES = 2  # of each type of numbers

# Every one of these has differed from eager once.
HAVE_FAILED = [
    "__rpow__", "addcdiv", "baddbmm", "cummax", "diff", "frexp", "fill", "kthvalue", "linalg.lu_factor", "masked.var",
    "native_batch_norm", "nn.BatchNorm1d (train)", "nn.GRUCell (train)", "nn.LSTMCell (eval)",
    "nn.functional.batch_norm", "nn.functional.conv1d", "nn.functional.hinge_embedding_loss",
    "nn.functional.pad.circular", "norm", "ormqr", "pow", "quantile", "sgn", "svd_lowrank", "zero_",
]  # fmt: skip

BY_NAME = {entry.name: entry for entry in entries()}
SPREAD = sorted({*list(BY_NAME)[::EVERY], *HAVE_FAILED} - set(EXCEPTIONS))


@pytest.mark.parametrize("name", SPREAD)
def test_entry(name: str) -> None:
    outcomes = list(outcomes_of(BY_NAME[name], SAMPLES))
    assert outcomes
    assert table.row(name, outcomes)["details"] == []


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exception_is_still_one(name: str) -> None:
    assert any(outcome.result == EXCEPTIONS[name].result for _, outcome in outcomes_of(BY_NAME[name]))


def test_exceptions_are_few() -> None:
    assert set(EXCEPTIONS) <= set(BY_NAME)
    assert len(EXCEPTIONS) <= len(BY_NAME) / 100


def test_a_crash_is_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies is made anew, and what it ran counts as failed."""
    worker = Worker(limit=1)
    worker._process.kill()
    outcomes = worker.run("add")
    assert [outcome.result for _, outcome in outcomes] == [CRASHED]
    assert table.verdict("add", outcomes) == table.FAILS
    assert table.verdict("add", worker.run("add")) == table.PASSES
    worker.close()
