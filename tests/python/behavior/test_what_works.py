"""The table "What works with what" of docs/behavior.md: a test shows each row; those that say "no" are here."""

import ast
import copy
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, step

ROOT = Path(__file__).resolve().parents[3]
HERE = "behavior/test_what_works.py"
# The tests that show each row, by the beginning of its first cell. Paths are those in tests/python.
TESTS = {
    "hooks of parameters and tensors": ["behavior/test_hooks.py::test_hooks_see_what_they_see_in_eager"],
    "hooks of modules that exist before": ["behavior/test_modules.py::test_scripted_hooks_run_once"],
    "hooks of modules afterward": [f"{HERE}::test_hooks_of_a_scripted_module_are_refused_and_of_its_parent_run"],
    "`torch.jit.save`, `lowered.save`": ["lowering/test_lower.py::test_a_saved_module_is_loaded_and_trained"],
    "`state_dict`": [
        "lowering/test_lower.py::test_train_eval_load_state_dict_and_double_work",
        f"{HERE}::test_a_state_dict_is_saved_and_loaded",
    ],
    "`pickle`": [f"{HERE}::test_pickling_is_refused"],
    "`copy.deepcopy`": [
        f"{HERE}::test_a_deep_copy_has_parameters_that_are_no_leaves",
        "behavior/test_clone.py::test_a_clone_trains_by_itself_as_the_module_does",
    ],
    "`torch.optim.swa_utils.AveragedModel`": [
        "behavior/test_training_loops.py::test_averages_are_those_of_the_eager_module"
    ],
    "`inspect.signature": ["behavior/test_clone.py::test_methods_have_signatures"],
    "`half()`": [f"{HERE}::test_conversions_train_as_in_eager"],
    "`torch.nn.parallel.DistributedDataParallel`": [
        "behavior/test_distributed.py::test_state_after_training_equals_eager"
    ],
    "`torch.autocast` around": ["behavior/test_autocast.py::test_bits_are_those_of_eager_autocast"],
    "`with torch.profiler.record_function": [
        "behavior/test_profiler_ranges.py::test_ranges_of_a_profiler_end_no_region"
    ],
    "`with torch.autocast": ["behavior/test_autocast_blocks.py::test_bits_are_eagers_and_nothing_ends_the_region"],
    "`torch.func` transforms": ["behavior/test_nested_transforms.py::test_transforms_of_torch_func_equal_eager"],
    "`TorchDispatchMode`": ["behavior/test_unplanned_calls.py::test_the_report_counts_unplanned_calls"],
    "`saved_tensors_hooks`": ["behavior/test_saved_tensors.py::test_results_with_hooks_and_checkpoints_equal_eager"],
    "`torch.compile`": [f"{HERE}::test_torch_compile_refuses_script_modules"],
    "`torch.jit.freeze`": ["behavior/test_modules.py::test_freezing_equals_eager_and_does_not_change_the_module"],
    "`transformers.Trainer`": ["behavior/test_training_loops.py::test_transformers_trainer"],
    "Lightning": [
        "behavior/test_training_loops.py::test_lightning",
        "behavior/test_training_loops.py::test_accelerate",
    ],
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def rows_of_the_table() -> list[str]:
    text = (ROOT / "docs" / "behavior.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"(?ms)^## What works with what\n(.*?)^#", text)
    rows = [line.strip("|").split("|")[0].strip() for line in section.splitlines() if line.startswith("|")]
    return rows[2:]  # without the head and the line under it


def test_each_row_has_a_test_that_exists() -> None:
    rows = rows_of_the_table()
    assert len(rows) > 15
    shown = {row: [tests for beginning, tests in TESTS.items() if row.startswith(beginning)] for row in rows}
    assert [row for row, tests in shown.items() if len(tests) != 1] == []
    assert [beginning for beginning in TESTS if not any(row.startswith(beginning) for row in rows)] == []
    for path, name in {tuple(test.split("::")) for tests in TESTS.values() for test in tests}:
        tree = ast.parse((ROOT / "tests" / "python" / path).read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in functions, f"there is no test {path}::{name}"


def _refusal(action: Callable[[Any], Any], module: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011  (compared with what a scripted module raises)
        action(module)
    return f"{type(raised.value).__name__}: {raised.value}".splitlines()[0]


@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(lambda *_: None),
        lambda module: module.register_forward_pre_hook(lambda *_: None),
        lambda module: module.register_full_backward_hook(lambda *_: None),
    ],
    ids=["forward", "forward_pre", "full_backward"],
)
def test_hooks_of_a_scripted_module_are_refused_and_of_its_parent_run(register: Callable[[Any], Any]) -> None:
    eager = Net()
    lowered = lowered_copy(eager, "all")
    message = _refusal(register, lowered)
    assert "is not supported on ScriptModules" in message
    assert message == _refusal(register, torch.jit.script(eager))

    seen: list[str] = []
    parent = nn.Sequential(lowered)
    parent.register_forward_hook(lambda *_: seen.append("forward"))
    parent.register_full_backward_hook(lambda *_: seen.append("backward"))
    parent(torch.randn(2, 4)).sum().backward()
    assert seen == ["forward", "backward"]


def test_a_state_dict_is_saved_and_loaded() -> None:
    lowered, other = lowered_copy(Net(), "all"), lowered_copy(Net(), "all")
    buffer = io.BytesIO()
    torch.save(lowered.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer))
    assert_same(list(other.parameters()), list(lowered.parameters()))


@pytest.mark.parametrize(
    "dump", [pickle.dumps, lambda module: torch.save(module, io.BytesIO())], ids=["pickle", "save"]
)
def test_pickling_is_refused(dump: Callable[[Any], Any]) -> None:
    eager = Net()
    refusals = [_refusal(dump, module) for module in (lowered_copy(eager, "all"), torch.jit.script(eager))]
    ours, plain = (re.sub(r"__torch__\S+", "CLASS", each) for each in refusals)
    assert ours == plain
    assert "serialize" in ours or "pickle" in ours


def test_a_deep_copy_has_parameters_that_are_no_leaves() -> None:
    eager = Net()
    for module in (torch.jit.script(eager), lowered_copy(eager, "all")):
        assert all(not parameter.is_leaf for parameter in copy.deepcopy(module).parameters())
    assert all(parameter.is_leaf for parameter in aten_recompute.clone(lowered_copy(eager, "all")).parameters())


@pytest.mark.parametrize(
    "convert",
    [lambda module: module.half(), lambda module: module.float(), lambda module: module.double()]
    + [lambda module, dtype=dtype: module.to(dtype) for dtype in (torch.bfloat16, torch.float64)],
    ids=["half", "float", "double", "to_bfloat16", "to_float64"],
)
def test_conversions_train_as_in_eager(convert: Callable[[Any], Any]) -> None:
    eager = Net()
    lowered = convert(lowered_copy(eager, "all"))
    convert(eager)
    x = torch.randn(3, 4).to(next(eager.parameters()).dtype)
    (outputs, gradients) = step(lowered, list(lowered.parameters()), (x,))
    (expected_outputs, expected_gradients) = step(eager, list(eager.parameters()), (x,))
    assert_same([*outputs, *gradients], [*expected_outputs, *expected_gradients])


def test_the_method_bfloat16_is_refused() -> None:
    assert "is not supported on ScriptModules" in _refusal(lambda module: module.bfloat16(), lowered_copy(Net(), "all"))


def test_functional_call_refuses_script_modules() -> None:
    lowered = lowered_copy(Net(), "all")

    def call(module: Any) -> Any:
        return torch.func.functional_call(module, dict(module.named_parameters()), (torch.randn(2, 4),))

    assert _refusal(call, lowered) == _refusal(call, torch.jit.script(Net()))


@pytest.mark.skipif(torch.__version__.startswith("2.11"), reason="torch.compile() runs them as they are there")
def test_torch_compile_refuses_script_modules() -> None:
    eager = Net()
    message = _refusal(lambda module: torch.compile(module)(torch.randn(2, 4)), lowered_copy(eager, "all"))
    assert message == _refusal(lambda module: torch.compile(module)(torch.randn(2, 4)), torch.jit.script(eager))
