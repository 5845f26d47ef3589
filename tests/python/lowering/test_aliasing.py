"""Tensors that share memory, and tensors that are written to, behave in a lowered module as in eager.

A scenario makes inputs, calls the module, does what a caller may do, and returns every tensor that a caller could look
at. A lowered module has to return the same, bit for bit, or raise the same error.
"""

import re

import pytest
import torch
from torch import Tensor, nn

from support import alias_cases_layouts, alias_cases_writes  # noqa: F401  (importing them adds their cases)
from support.alias_cases import CASES, Scenario
from support.helpers import assert_same, lowered_copy

STRATEGIES = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "budget": {"strategy": "budget", "time_budget": 2.0, "cost_model": "flops"},
}

CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"
# The cases in which ours differs from eager: it raises this error, or none if the string is empty.
OTHER_ERRORS: dict[tuple[str, str], str] = {
    # Recomputation reads the parameter, which eager does not need any more.
    ("view_of_a_parameter_written_after_the_call", "all"): CHANGED,
    ("view_of_a_parameter_written_after_the_call", "budget"): CHANGED,
    # In-place operators on values of the method have become functional, so the gradients are those that were meant.
    **{
        (name, strategy): ""
        for name in (
            "own_value_written_that_tanh_keeps",
            "own_value_written_that_sin_read",
            "view_of_an_own_value_written_that_exp_keeps",
        )
        for strategy in STRATEGIES
    },
}


def outcome(module: nn.Module, scenario: Scenario) -> tuple[str, list[Tensor | None]]:
    """Returns the message without its place, and the scenario's tensors, gradients, state, and numbers of writes."""
    torch.manual_seed(5)
    module.zero_grad(set_to_none=True)
    state = [*module.parameters(), *module.buffers()]
    before = [t._version for t in state]
    error = ""
    tensors: list[Tensor | None] = []
    try:
        tensors = scenario(module)
    except RuntimeError as raised:
        # TorchScript adds the place and repeats the message after it.
        error = re.split(r"[:\[.]", str(raised).split("RuntimeError: ")[-1])[0]
    tensors = [t.detach().clone() if t is not None else None for t in tensors]
    written = torch.tensor([t._version - version for t, version in zip(state, before, strict=True)])
    return error, tensors + [p.grad for p in module.parameters()] + [t.detach().clone() for t in state] + [written]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", CASES)
def test_shared_and_written_tensors_behave_as_in_eager(name: str, strategy: str) -> None:
    make, scenario = CASES[name]
    eager = make()
    lowered = lowered_copy(eager, STRATEGIES[strategy])
    for _ in range(2):  # the second call runs the compiled programs again
        expected, actual = outcome(eager, scenario), outcome(lowered, scenario)
        if (name, strategy) in OTHER_ERRORS:
            assert expected[0] != actual[0] == OTHER_ERRORS[name, strategy]
            continue
        assert actual[0] == expected[0]
        assert_same(actual[1], expected[1])
