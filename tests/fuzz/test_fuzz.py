"""Some hundred random programs; ``make fuzz`` runs as many as asked for."""

import os

import pytest
import torch

pytest.importorskip("hypothesis", reason="draws the programs")

from hypothesis import HealthCheck, given, seed, settings  # noqa: E402

from .check import check, difference, function_of, run  # noqa: E402
from .programs import Program, programs  # noqa: E402

COUNT = int(os.environ.get("FUZZ_COUNT", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "2"))


@pytest.fixture(autouse=True)
def one_thread():
    """Sums in another order are another result."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@seed(SEED)
@settings(max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_programs(program: Program) -> None:
    check(program)


def test_a_difference_is_seen() -> None:
    """The comparison tells a program from one whose gradient alone is another."""
    source = "def program(a: Tensor, b: Tensor, c: Tensor) -> Tuple[Tensor]:\n    return ({},)\n"
    shapes, needs = [(2, 2)] * 3, [True, False, False]
    results = [
        run(function_of(program), program)
        for program in (Program(source.format(text), shapes, needs) for text in ("a * b", "a.detach() * b + a * 0.0"))
    ]
    assert difference(results[0], results[0]) == ""
    assert "tensor 2 differs" in difference(results[1], results[0])
    assert "tensor 2 differs" in difference(results[1]._replace(sums_outside=False), results[0])
