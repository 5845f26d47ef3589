"""Modules as people write them train as in eager: outputs, gradients, buffers and random state are equal to the bit."""

from typing import Any

import pytest
import torch
from torch import Tensor

from support.helpers import assert_same, lowered_copy, tensors_in
from support.programs import PROGRAMS


def squares(outputs: list[Tensor]) -> Any:
    """Returns the sum of the squares of all elements."""
    return sum((t.abs() if t.is_complex() else t).square().sum() for t in outputs)


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_a_program_equal_eager(name: str, strategy: str) -> None:
    make, shape = PROGRAMS[name]
    eager = make()
    lowered = lowered_copy(eager, strategy)
    values = torch.randn(shape)
    for seed in (1, 2):
        results = []
        for module in (eager, lowered):
            module.zero_grad(set_to_none=True)
            torch.manual_seed(seed)
            x = values.clone().requires_grad_()
            outputs = tensors_in(module(x))
            squares(outputs).backward()
            results.append(
                [t.detach() for t in outputs]
                + [x.grad]
                + [p.grad for p in module.parameters()]
                + list(module.buffers())
                + [torch.get_rng_state()]
            )
        assert_same(results[1], results[0])
