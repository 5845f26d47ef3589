"""tools/tidy.py reads the sources of a folder together, and reports their own lines."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tidy() -> Any:
    spec = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_groups_are_of_one_folder_and_have_each_source_once(tidy: Any) -> None:
    files = [f"a/{i}.cpp" for i in range(30)] + ["b/x.cpp", "a/0.cpp", "a/b/y.cpp"]
    found = tidy.groups(files)
    assert sorted(file for group in found for file in group) == sorted(set(files))
    for group in found:
        assert len({Path(file).parent for file in group}) == 1
        assert len(group) <= tidy.LARGEST_GROUP
    assert len(found) == 5  # three of a, one each of b and a/b


def test_lines_of_a_filter_move_with_their_source(tidy: Any) -> None:
    given = [
        {"name": "a/x.cpp", "lines": [[1, 2]]},
        {"name": "a/y.cpp", "lines": [[3, 3], [5, 9]]},
        {"name": "a/x.h", "lines": [[4, 4]]},
    ]
    found = tidy.filter_of_group(given, ["a/x.cpp", "a/y.cpp"], [0, 100], Path("/build/together.cpp"))
    assert found == [
        {"name": "a/x.h", "lines": [[4, 4]]},
        {"name": "/build/together.cpp", "lines": [[1, 2], [103, 103], [105, 109]]},
    ]
    assert tidy.filter_of_group([], ["a/x.cpp"], [0], Path("/build/together.cpp")) == []


def test_a_folder_may_leave_out_a_check(tidy: Any) -> None:
    assert tidy.checks_of(Path("rules/kernels")) == "-performance-unnecessary-value-param"
    assert tidy.checks_of(Path("rules")) == ""
