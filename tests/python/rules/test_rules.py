"""The gradient rule of each operator gives eager's results, bit for bit unless a case states a tolerance.

A case is one scripted function. Its inputs are copied first, so that views of them remain inside of a region. Otherwise
the operator under test would run outside, under ordinary autograd.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from support import rule_cases_layers, rule_cases_losses, rule_cases_tensors
from support.helpers import to_backend
from support.rule_cases_tensors import Case

CASES = [*rule_cases_tensors.CASES, *rule_cases_layers.CASES, *rule_cases_losses.CASES]

_TEMPLATE = """
from typing import Dict, List, Optional, Tuple
import torch
import torch.nn.functional as F
from torch import Tensor


class Module(torch.nn.Module):
    def forward(self, {signature}):
{copies}
{body}
"""


def _build(case: Case, folder: Path) -> torch.nn.Module:
    """Writes the module of the case to a file, since TorchScript reads source, and imports it."""
    arguments = case.inputs(torch.float32)
    copies = [f"        {name} = {name}.clone()" for name, value in arguments.items() if value.requires_grad]
    lines = case.body.strip().split("\n")
    if not lines[-1].startswith("return"):
        lines[-1] = "return " + lines[-1]
    source = _TEMPLATE.format(
        signature=", ".join(arguments),
        copies="\n".join(copies),
        body="\n".join("        " + line for line in lines),
    )
    path = folder / "case.py"
    path.write_text(source)
    specification = importlib.util.spec_from_file_location(f"case_{folder.name}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    made: torch.nn.Module = module.Module()
    return made


def _run(module: Any, arguments: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Returns the outputs, and the gradients of the inputs for random gradients of the outputs."""
    torch.manual_seed(7)
    outputs = module(*arguments.values())
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    differentiable = [output for output in outputs if output.requires_grad]
    inputs = [value for value in arguments.values() if value.requires_grad]
    torch.manual_seed(8)
    vectors = [torch.randn_like(output) for output in differentiable]
    gradients = torch.autograd.grad(differentiable, inputs, vectors, allow_unused=True)
    return outputs, list(gradients)


def _assert_same(actual: torch.Tensor | None, expected: torch.Tensor | None, tolerance: float) -> None:
    assert (actual is None) == (expected is None)
    if actual is None or expected is None:
        return
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if tolerance == 0:
        assert torch.equal(torch.nan_to_num(actual.detach(), nan=77), torch.nan_to_num(expected.detach(), nan=77))
    else:
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def _on_tape(lowered: Any) -> list[str]:
    names: list[str] = []
    for method in json.loads(torch.ops.aten_recompute.report(lowered._c))["methods"]:
        for specialization in method["specialisations"]:
            for region in specialization["regions"]:
                for variant in region["variants"]:
                    names += variant["on_tape"]
    return names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_and_gradients_equal_eager(case: Case, tmp_path: Path) -> None:
    eager = _build(case, tmp_path)
    scripted = torch.jit.script(eager)
    for specification in ('{"strategy": "none"}', '{"1": null}'):
        lowered = to_backend(scripted, specification)
        for dtype in case.dtypes:
            expected_arguments, arguments = case.inputs(dtype), case.inputs(dtype)
            expected_outputs, expected_gradients = _run(eager, expected_arguments)
            state = torch.get_rng_state()
            outputs, gradients = _run(lowered, arguments)
            assert torch.equal(torch.get_rng_state(), state)
            for actual, expected in zip(outputs + gradients, expected_outputs + expected_gradients, strict=True):
                _assert_same(actual, expected, case.tolerance)
            # Inputs such as running statistics are updated equally.
            for actual, expected in zip(arguments.values(), expected_arguments.values(), strict=True):
                _assert_same(actual, expected, 0)
        assert _on_tape(lowered) == []
        # The gradient came from a region, by the rule.
        assert any(gradient is not None for gradient in gradients)
