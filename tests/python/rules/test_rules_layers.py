"""Gradient rules for arithmetic, activations, matrices, convolutions, normalisations, dropout, embeddings and losses.

They are compared with eager PyTorch bit for bit; where a case states a tolerance, the rule says why.
"""

import pytest
import torch
from test_rules_tensors import _assert_same, _build, _on_tape, _run

import aten_recompute

from support.rule_cases_layers import CASES
from support.rule_cases_tensors import Case


def both(case: Case, folder):
    eager = _build(case, folder)
    return eager, torch.jit.script(eager)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_eager(case: Case, tmp_path) -> None:
    eager, scripted = both(case, tmp_path)
    for specification in ('{"strategy": "none"}', '{"1": null}'):
        lowered = torch._C._jit_to_backend("aten_recompute", scripted, {"forward": specification})
        for dtype in case.dtypes:
            expected_arguments, arguments = case.inputs(dtype), case.inputs(dtype)
            expected_outputs, expected_gradients = _run(eager, expected_arguments)
            state = torch.get_rng_state()
            outputs, gradients = _run(lowered, arguments)
            assert torch.equal(torch.get_rng_state(), state)
            assert len(outputs) == len(expected_outputs)
            for actual, expected in zip(outputs + gradients, expected_outputs + expected_gradients):
                _assert_same(actual, expected, case.tolerance)
            # Running statistics.
            for actual, expected in zip(arguments.values(), expected_arguments.values()):
                _assert_same(actual, expected, 0)
        assert _on_tape(lowered) == []
