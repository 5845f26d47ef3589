"""``tools/changed_lines.py`` prints the lines that a commit changes, for clang-tidy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "changed_lines.py"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, **files: str | None) -> None:
    """Writes the files, ``a__b_cpp`` for a/b.cpp, or removes those that are None, and commits the folder."""
    for key, text in files.items():
        name = key.replace("__", "/")
        path = folder / ".".join(name.rsplit("_", 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a commit")


def run(folder: Path, *arguments: str, base_ref: str = "") -> tuple[int, str, str]:
    """Returns the exit status of the script and what it prints, to standard output and to standard error."""
    environment = os.environ | {"GITHUB_BASE_REF": base_ref}
    command = [sys.executable, str(SCRIPT), *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout, result.stderr.strip()


def changed(folder: Path, *arguments: str, base_ref: str = "") -> dict[str, list[list[int]]]:
    """Returns the changed lines of each file."""
    status, printed, said = run(folder, *arguments, base_ref=base_ref)
    assert (status, said) == (0, "")
    return {entry["name"]: entry["lines"] for entry in json.loads(printed)}


def sources(folder: Path) -> list[str]:
    status, printed, said = run(folder, "--sources")
    assert (status, said) == (0, "")
    return printed.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one commit, which has two sources of the library and a test."""
    git(tmp_path, "init", "-q", "-b", "main")
    text = "1\n2\n3\n4\n"
    commit(tmp_path, common__a_cpp=text, common__a_h=text, common__b_cpp=text, common__alone_h=text, tests__a_cpp=text)
    return tmp_path


def test_nothing_differs_from_the_parent_of_an_empty_commit(folder: Path) -> None:
    commit(folder)
    assert changed(folder) == {}
    assert sources(folder) == []


def test_lines_that_are_new_or_other_are_printed(folder: Path) -> None:
    commit(folder, common__a_cpp="1\nnew\n2\n3\nother\n", common__b_cpp="1\n2\n3\n4\n5\n6\n")
    assert changed(folder) == {"common/a.cpp": [[2, 2], [5, 5]], "common/b.cpp": [[5, 6]]}


def test_lines_that_are_gone_and_files_that_are_gone_are_not_printed(folder: Path) -> None:
    commit(folder, common__a_cpp="1\n4\n", common__b_cpp=None)
    assert changed(folder) == {}


def test_only_cpp_files_of_the_library_count(folder: Path) -> None:
    commit(folder, tests__a_cpp="x\n", README_md="x\n", common__README_md="x\n")
    assert changed(folder) == {}


def test_a_header_is_read_through_the_source_beside_it(folder: Path) -> None:
    commit(folder, common__a_h="x\n", common__b_cpp="x\n", common__alone_h="x\n")
    assert list(changed(folder)) == ["common/a.h", "common/alone.h", "common/b.cpp"]
    assert sources(folder) == ["common/a.cpp", "common/b.cpp"]


def test_changes_that_are_not_committed_and_new_files_count(folder: Path) -> None:
    commit(folder)
    (folder / "common" / "a.cpp").write_text("x\n2\n3\n4\n")
    (folder / "common" / "new.cpp").write_text("x\n")
    assert changed(folder) == {"common/a.cpp": [[1, 1]], "common/new.cpp": [[1, 1_000_000]]}
    assert sources(folder) == ["common/a.cpp", "common/new.cpp"]


def test_a_pull_request_is_compared_with_the_point_where_it_left_its_target(folder: Path) -> None:
    git(folder, "checkout", "-q", "-b", "change")
    commit(folder, common__a_cpp="x\n2\n3\n4\n")
    commit(folder)
    git(folder, "checkout", "-q", "main")
    commit(folder, common__b_cpp="x\n2\n3\n4\n")
    git(folder, "update-ref", "refs/remotes/origin/main", "main")
    git(folder, "checkout", "-q", "change")
    assert changed(folder, base_ref="main") == {"common/a.cpp": [[1, 1]]}


def test_another_commit_can_be_named(folder: Path) -> None:
    first = git(folder, "rev-parse", "HEAD")
    commit(folder, common__a_cpp="x\n2\n3\n4\n")
    commit(folder)
    assert changed(folder, first) == {"common/a.cpp": [[1, 1]]}


@pytest.mark.parametrize(("arguments", "base_ref"), [((), ""), (("missing",), ""), ((), "missing")])
def test_without_a_commit_to_compare_with_one_line_says_so(
    folder: Path, arguments: tuple[str, ...], base_ref: str
) -> None:
    expected = (1, "", "there is no commit to compare with")
    assert run(folder, *arguments, base_ref=base_ref) == expected
    assert run(folder, "--sources", *arguments, base_ref=base_ref) == expected
