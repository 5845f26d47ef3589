"""``tools/check_includes.py`` accepts this repository and prints every include that points the wrong way."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "check_includes.py"


def check(root: Path) -> tuple[int, list[str]]:
    """Returns the exit status and the lines that the script prints for the tree at ``root``."""
    result = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
    assert result.stdout == ""
    return result.returncode, result.stderr.splitlines()


def write(root: Path, name: str, *includes: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{include}\n" for include in includes))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a header in several folders and no wrong include."""
    for header in (
        "common/log.h",
        "planner/model/problem.h",
        "planner/graph/flow.h",
        "ir/traits.h",
        "rules/rule.h",
        "passes/frontend/prepare.h",
        "passes/pipeline.h",
        "backend/region/region.h",
    ):
        write(tmp_path, header)
    return tmp_path


def test_this_repository_is_accepted() -> None:
    assert check(ROOT) == (0, [])


def test_includes_of_lower_folders_and_of_the_own_one_are_accepted(tree: Path) -> None:
    write(
        tree,
        "passes/pipeline.cpp",
        '#include "passes/pipeline.h"',
        '#include "passes/frontend/prepare.h"',
        '#include "common/log.h"',
        "#include <vector>",
        "#include <backend/of_another_library.h>",
    )
    assert check(tree) == (0, [])


@pytest.mark.parametrize(
    ("source", "included"),
    [
        ("passes/frontend/prepare.cpp", "backend/region/region.h"),
        ("passes/frontend/prepare.cpp", "passes/pipeline.h"),
        ("ir/traits.cpp", "rules/rule.h"),
        ("common/log.cpp", "ir/traits.h"),
    ],
)
def test_an_include_that_points_upwards_is_an_error(tree: Path, source: str, included: str) -> None:
    write(tree, source, "#pragma once", f'#include "{included}"')
    status, lines = check(tree)
    assert status == 1
    folder, other = source.rpartition("/")[0], included.rpartition("/")[0]
    assert lines == [f'{source}:2: {folder}/ must not include "{included}": {other}/ does not stand below it']


def test_the_run_time_sees_passes_through_the_pipeline_alone(tree: Path) -> None:
    write(tree, "backend/region/region.cpp", '#include "passes/pipeline.h"', '#include "passes/frontend/prepare.h"')
    status, lines = check(tree)
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(
        'backend/region/region.cpp:2: backend/region/ must not include "passes/frontend/prepare.h"'
    )


@pytest.mark.parametrize(
    ("source", "included"),
    [
        ("planner/model/problem.cpp", "planner/graph/flow.h"),
        ("planner/graph/flow.cpp", "planner/model/problem.h"),
    ],
)
def test_an_include_that_points_sideways_is_an_error(tree: Path, source: str, included: str) -> None:
    write(tree, source, f'#include "{included}"')
    status, lines = check(tree)
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(f"{source}:1: ")


def test_a_header_may_not_point_upwards_either(tree: Path) -> None:
    write(tree, "ir/traits.h", '  #  include "backend/region/region.h"')
    assert check(tree)[0] == 1


def test_an_include_in_quotes_that_names_no_file_is_an_error(tree: Path) -> None:
    write(tree, "passes/frontend/prepare.cpp", '#include "prepare.h"')
    status, lines = check(tree)
    assert status == 1
    assert lines == [
        (
            'passes/frontend/prepare.cpp:1: "prepare.h" is no file of this repository; '
            "write the path from the root, or use <> for a library"
        ),
    ]


def test_a_folder_without_a_place_is_an_error(tree: Path) -> None:
    write(tree, "passes/new/pass.cpp", '#include "common/log.h"')
    status, lines = check(tree)
    assert status == 1
    assert "passes/new/ has no place in LAYERS" in lines[0]


def test_every_wrong_include_is_printed(tree: Path) -> None:
    write(
        tree,
        "common/log.cpp",
        '#include "ir/traits.h"',
        '#include "common/log.h"',
        '#include "backend/region/region.h"',
    )
    status, lines = check(tree)
    assert status == 1
    assert [line.split(": ")[0] for line in lines] == ["common/log.cpp:1", "common/log.cpp:3"]


def test_a_folder_without_sources_is_an_error(tmp_path: Path) -> None:
    status, lines = check(tmp_path)
    assert status == 1
    assert "no source files here" in lines[0]


@pytest.mark.parametrize(
    ("source", "included"),
    [
        ("backend/memory/watch.cpp", "backend/region/region.h"),
        ("passes/frontend/rewrites/fold.cpp", "passes/frontend/prepare.h"),
    ],
)
def test_an_include_that_points_upwards_within_a_folder_is_an_error(tree: Path, source: str, included: str) -> None:
    write(tree, source, f'#include "{included}"')
    status, lines = check(tree)
    assert status == 1
    folder, other = source.rpartition("/")[0], included.rpartition("/")[0]
    assert lines == [f'{source}:1: {folder}/ must not include "{included}": {other}/ does not stand below it']


def test_a_circle_between_files_of_a_folder_is_an_error(tree: Path) -> None:
    write(tree, "ir/names.h", "#pragma once")
    write(tree, "ir/traits.cpp", '#include "ir/traits.h"', '#include "ir/names.h"')
    write(tree, "ir/names.cpp", '#include "ir/names.h"')
    assert check(tree) == (0, [])
    write(tree, "ir/names.cpp", '#include "ir/names.h"', '#include "ir/traits.h"')
    status, lines = check(tree)
    assert status == 1
    assert len(lines) == 1
    assert "this include closes a circle: " in lines[0]
    assert lines[0].startswith(("ir/names.cpp:2: ", "ir/traits.cpp:2: "))


def test_a_circle_of_three_files_names_all_of_them(tree: Path) -> None:
    write(tree, "ir/a.h", '#include "ir/b.h"')
    write(tree, "ir/b.h", '#include "ir/c.h"')
    write(tree, "ir/c.h", '#include "ir/a.h"')
    status, lines = check(tree)
    assert status == 1
    (line,) = lines
    chain = line.partition("circle: ")[2].split(" -> ")
    assert sorted(chain[:-1]) == ["a", "b", "c"]
    assert chain[0] == chain[-1]
    including, included = line.partition(":")[0], chain[-1]
    assert f'"ir/{included}.h"' in (tree / including).read_text()
