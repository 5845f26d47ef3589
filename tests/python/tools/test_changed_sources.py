"""``tools/changed_sources.sh`` names the sources that a commit changes, for clang-tidy."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "changed_sources.sh"


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


def changed(folder: Path, *arguments: str, base_ref: str = "") -> tuple[int, list[str], str]:
    """Returns the exit status of the script, the sources that it names, and what it says."""
    environment = os.environ | {"GITHUB_BASE_REF": base_ref}
    command = [str(folder / "tools" / SCRIPT.name), *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, result.stdout.splitlines(), result.stderr.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one commit, which has two sources of the library and a test."""
    (tmp_path / "tools").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, common__a_cpp="1", common__a_h="1", common__b_cpp="1", common__alone_h="1", tests__a_cpp="1")
    return tmp_path


def test_nothing_is_named_where_nothing_has_changed(folder: Path) -> None:
    commit(folder)
    assert changed(folder) == (0, [], "")


def test_sources_and_headers_that_differ_from_the_parent_commit_are_named_by_their_source(folder: Path) -> None:
    commit(folder, common__a_h="2", common__b_cpp="2", common__alone_h="2", tests__a_cpp="2", README_md="2")
    assert changed(folder) == (0, ["common/a.cpp", "common/b.cpp"], "")


def test_changes_that_are_not_committed_count(folder: Path) -> None:
    commit(folder)
    (folder / "common" / "a.cpp").write_text("2")
    (folder / "common" / "new.cpp").write_text("2")
    assert changed(folder) == (0, ["common/a.cpp", "common/new.cpp"], "")


def test_files_that_are_gone_are_not_named(folder: Path) -> None:
    commit(folder, common__b_cpp=None)
    assert changed(folder) == (0, [], "")


def test_a_pull_request_is_compared_with_the_point_where_it_left_its_target(folder: Path) -> None:
    git(folder, "checkout", "-q", "-b", "change")
    commit(folder, common__a_cpp="2")
    commit(folder)
    git(folder, "checkout", "-q", "main")
    commit(folder, common__b_cpp="2")
    git(folder, "update-ref", "refs/remotes/origin/main", "main")
    git(folder, "checkout", "-q", "change")
    assert changed(folder, base_ref="main") == (0, ["common/a.cpp"], "")


def test_another_commit_can_be_named(folder: Path) -> None:
    first = git(folder, "rev-parse", "HEAD")
    commit(folder, common__a_cpp="2")
    commit(folder)
    assert changed(folder, first) == (0, ["common/a.cpp"], "")


def test_without_a_parent_commit_the_script_says_so(folder: Path) -> None:
    assert changed(folder) == (1, [], "there is no commit HEAD^ to compare with")
