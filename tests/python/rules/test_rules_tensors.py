"""Gradient rules for shapes, indexing, reductions, softmax, pooling and attention against eager PyTorch, bit for bit.

A case is one scripted function. Its inputs are copied first, so that views of them stay inside of a region: the
operator under test would otherwise run outside, under ordinary autograd.
"""

import importlib.util
import json

import pytest
import torch

import aten_recompute

from support.rule_cases_tensors import CASES, Case

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


def _build(case: Case, folder) -> torch.nn.Module:
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
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.Module()


def _tensors(outputs) -> list[torch.Tensor]:
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def _run(module, arguments: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Outputs, and gradients of the inputs that require one, for gradients of the outputs that are drawn anew."""
    torch.manual_seed(7)
    outputs = _tensors(module(*arguments.values()))
    differentiable = [output for output in outputs if output.requires_grad]
    inputs = [value for value in arguments.values() if value.requires_grad]
    torch.manual_seed(8)
    vectors = [torch.randn_like(output) for output in differentiable]
    gradients = torch.autograd.grad(differentiable, inputs, vectors, allow_unused=True)
    return outputs, list(gradients)


def _assert_same(actual: torch.Tensor | None, expected: torch.Tensor | None, tolerance: float) -> None:
    assert (actual is None) == (expected is None)
    if expected is None:
        return
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if tolerance == 0:
        assert torch.equal(torch.nan_to_num(actual.detach(), nan=77), torch.nan_to_num(expected.detach(), nan=77))
    else:
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def _on_tape(lowered) -> list[str]:
    names: list[str] = []
    for method in json.loads(torch.ops.aten_recompute.report(lowered._c))["methods"]:
        for specialisation in method["specialisations"]:
            for region in specialisation["regions"]:
                for variant in region["variants"]:
                    names += variant["on_tape"]
    return names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_eager(case: Case, tmp_path) -> None:
    eager = _build(case, tmp_path)
    scripted = torch.jit.script(eager)
    for specification in ('{"strategy": "none"}', '{"1": null}'):
        lowered = torch._C._jit_to_backend("aten_recompute", scripted, {"forward": specification})
        for dtype in case.dtypes:
            arguments = case.inputs(dtype)
            expected_outputs, expected_gradients = _run(eager, arguments)
            outputs, gradients = _run(lowered, arguments)
            assert len(outputs) == len(expected_outputs)
            for actual, expected in zip(outputs + gradients, expected_outputs + expected_gradients):
                _assert_same(actual, expected, case.tolerance)
        assert _on_tape(lowered) == []
        # The rule was used: the gradient came out of a region.
        assert any(gradient is not None for gradient in gradients)
