"""The check of docs/seeds.md, and that it finds what is wrong."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "check_seeds.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_seeds", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_row_names_a_test_that_exists(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["check_seeds.py"])
    status = tool.main()
    assert (status, capsys.readouterr().err) == (0, "")


def test_missing_tests_and_rows_without_one_are_found(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "seeds.md"
    table.write_text(
        "| there | here | code | test |\n|---|---|---|---|\n"
        "| a | b | c | `tests/python/tools/test_check_seeds.py::test_that_is_not_there` |\n"
        "| d | no | e | `Enable.WhatIsSavedIsPlain` |\n"
        "| f | g | h | `Enable.WhatIsNot` |\n"
        "| i | j | k | |\n"
    )
    monkeypatch.setattr(tool, "TABLE", table)
    monkeypatch.setattr("sys.argv", ["check_seeds.py"])
    assert tool.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        'seeds.md: the row "d" names no test',
        'seeds.md: the row "i" names no test',
        "seeds.md: there is no test tests/python/tools/test_check_seeds.py::test_that_is_not_there",
        "seeds.md: there is no test Enable.WhatIsNot",
    ]
