"""The pytest plugin: a test fails where its tensors take more than the mark allows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aten_recompute_pytest

ROOT = Path(__file__).resolve().parents[3]

TESTS = '''
import json
import threading
import pytest
import torch
from torch import nn

MIB = 2**20

def mebibytes(count):
    return torch.ones(count * MIB // 4)

@pytest.mark.max_peak("10MiB")
def test_below():
    mebibytes(4)
    mebibytes(4)
    mebibytes(4)

@pytest.mark.max_peak(limit=10 * MIB)
def test_above():
    a = mebibytes(4)
    b = mebibytes(3)
    c = mebibytes(5)
    del a, b, c

@pytest.mark.max_peak("10 MiB")
def test_exactly():
    a = mebibytes(4)
    b = mebibytes(6)

@pytest.mark.max_peak("10 MiB")
def test_eager_backward():
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    x = torch.rand(2048, 256)
    model(x).sum().backward()

@pytest.mark.max_peak("1KiB")
def test_lowered():
    import aten_recompute
    model = torch.jit.script(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid()))
    lowered = aten_recompute.lower(model, "budget", memory_budget=1.0)
    for _ in range(3):
        lowered(torch.rand(512, 64)).sum().backward()

@pytest.mark.max_peak("100MiB")
def test_planning_goes_on():
    """Steps are watched as without the mark."""
    import aten_recompute
    model = torch.jit.script(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Sigmoid()))
    lowered = aten_recompute.lower(model, "budget", memory_budget=1.0)
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        lowered(torch.rand(512, 64)).sum().backward()
    assert '"measured_peak_bytes"' in json.dumps(aten_recompute.report(lowered))

@pytest.mark.max_peak("10MiB")
def test_other_thread():
    thread = threading.Thread(target=mebibytes, args=(16,))
    thread.start()
    thread.join()

KEPT = []

@pytest.mark.max_peak("10MiB")
def test_keeps():
    KEPT.append(mebibytes(8))

@pytest.mark.max_peak("10MiB")
def test_what_was_there_before_does_not_count():
    mebibytes(8)
    KEPT.clear()

@pytest.fixture
def batch():
    return mebibytes(64)

@pytest.mark.max_peak("10MiB")
def test_fixtures_do_not_count(batch):
    batch[:MIB].clone()

@pytest.mark.max_peak("1KiB")
def test_own_failure():
    a = mebibytes(4)
    raise RuntimeError("the test's own error")

def test_unmarked():
    mebibytes(64)

@pytest.mark.max_peak("1 frog")
def test_bad_unit(): pass

@pytest.mark.max_peak
def test_no_limit(): pass

@pytest.mark.max_peak(-1)
def test_negative(): pass

@pytest.mark.max_peak(True)
def test_bool(): pass

@pytest.mark.max_peak("1MiB", "2MiB")
def test_two(): pass
'''


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs pytest with the plugin as an installed package would load it."""
    command = [sys.executable, "-m", "pytest", "-p", "aten_recompute_pytest", "-p", "no:cacheprovider", *arguments]
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "RECOMPUTE_LIBRARY")}
    environment = {**kept, "PYTHONPATH": str(ROOT / "python"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("limited")
    (folder / "test_limited.py").write_text(TESTS)
    done = run_pytest(folder, "-rA", "-W", "ignore", "--strict-markers", "test_limited.py")
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def failure(output: str, name: str) -> str:
    """Returns what pytest says of a test that failed."""
    found = re.search(rf"^_+ {name} _+$\n(.*?)(?=^_+ \w+ _+$|^=+ )", output, re.MULTILINE | re.DOTALL)
    assert found is not None, output
    return found[1].strip("\n")


def test_only_the_right_ones_fail(output: str) -> None:
    passed = set(re.findall(r"^PASSED test_limited\.py::test_(\w+)$", output, re.MULTILINE))
    assert passed == {
        *("below", "exactly", "planning_goes_on", "keeps", "what_was_there_before_does_not_count"),
        *("fixtures_do_not_count", "unmarked"),
    }


def test_the_failure_names_the_values_with_their_lines_the_largest_first(output: str) -> None:
    lines = failure(output, "test_above").splitlines()
    assert lines[0] == (
        "max_peak: the peak of the tensors on the CPU is 12.0 MiB, the limit 10.0 MiB; the largest, "
        "when 12.0 MiB were alive:"
    )
    assert lines[1].split() == ["operator", "part", "of", "line", "bytes"]
    assert [line.split()[-2] for line in lines[2:]] == ["5.0", "4.0", "3.0"]
    assert all(re.search(r"aten::ones +\S*test_limited.py:\d+ in mebibytes", line) for line in lines[2:])


def test_ten_values_at_most(output: str) -> None:
    lines = failure(output, "test_eager_backward").splitlines()
    assert len(lines) == 2 + 10
    assert any("aten::linear" in line and "in test_eager_backward" in line for line in lines)


def test_values_of_lowered_modules_have_their_layer(output: str) -> None:
    text = failure(output, "test_lowered")
    assert re.search(r"aten::linear +forward of 0 .* 128\.0 KiB", text)
    assert re.search(r"aten::\w+ +backward of [0-3] ", text)


def test_all_threads_count(output: str) -> None:
    assert "the peak of the tensors on the CPU is 16.0 MiB" in failure(output, "test_other_thread")


def test_an_error_of_the_test_itself_is_shown(output: str) -> None:
    text = failure(output, "test_own_failure")
    assert "RuntimeError: the test's own error" in text
    assert "max_peak:" not in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_bad_unit", "max_peak: the limit is '1 frog'; accepted are bytes, such as 4096 or \"600MiB\""),
        ("test_negative", "max_peak: the limit is -1; accepted are bytes"),
        ("test_bool", "max_peak: the limit is True; accepted are bytes"),
        ("test_no_limit", "max_peak takes one limit; accepted are bytes"),
        ("test_two", "max_peak takes one limit; accepted are bytes"),
    ],
)
def test_a_bad_limit_is_one_line(output: str, name: str, message: str) -> None:
    text = failure(output, name)
    assert text.startswith(message)
    assert len(text.splitlines()) == 1


def test_runs_without_the_mark_do_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n")
    done = run_pytest(tmp_path, "-q")
    assert done.returncode == 0, done.stdout


def test_sizes_that_are_written_alike_are_told_apart() -> None:
    text = aten_recompute_pytest.message_of(1_048_575, {"peak_bytes": 1_048_576, "blocks": []})
    assert text.endswith("is 1.0 MiB (1,048,576 B), the limit 1.0 MiB (1,048,575 B)")
