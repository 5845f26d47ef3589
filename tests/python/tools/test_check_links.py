"""``tools/check_links.py`` accepts the documents of this repository and prints every link that leads nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "check_links.py"


def check(folder: Path, *files: str) -> tuple[int, list[str]]:
    """Returns the exit status and the lines that the script prints for these files of the folder."""
    command = [sys.executable, str(SCRIPT), *files]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.stdout == ""
    return result.returncode, result.stderr.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a document, ``guide/steps.md``, that others link to."""
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "steps.md").write_text(
        "# Steps\n\n## What `make` does, and why\n\n## Again\n\n## Again\n\n```sh\n## no heading\n```\n"
    )
    return tmp_path


def test_the_documents_of_this_repository_are_accepted() -> None:
    documents = [str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]]
    assert len(documents) > 50
    assert check(ROOT, *documents) == (0, [])


@pytest.mark.parametrize(
    "link",
    [
        "[a](guide/steps.md)",
        "[a](guide/)",
        "[a](guide/steps.md#what-make-does-and-why)",
        "[a](guide/steps.md#again-1)",
        "[a](#title)",
        '[a](guide/steps.md "the steps")',
        "[a](https://example.com/nothing.md#there)",
        "`[a](in_code.md)`",
        "```text\n[a](in_code.md)\n```",
        "[a][steps]\n\n[steps]: guide/steps.md",
    ],
)
def test_a_link_that_leads_somewhere_is_accepted(folder: Path, link: str) -> None:
    (folder / "a.md").write_text(f"# Title\n\n{link}\n")
    assert check(folder, "a.md") == (0, [])


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("[a](guide/missing.md)", "guide/missing.md: there is no such file"),
        ("[![a](missing.svg)](guide/steps.md)", "missing.svg: there is no such file"),
        ("[steps]: missing.md", "missing.md: there is no such file"),
        ("[a](/guide/steps.md)", "/guide/steps.md: write the path relative to the file"),
        ("[a](guide/steps.md#never)", "guide/steps.md#never: no heading there has the anchor #never"),
        ("[a](guide/steps.md#no-heading)", "guide/steps.md#no-heading: no heading there has the anchor #no-heading"),
        ("[a](guide/steps.md#again-2)", "guide/steps.md#again-2: no heading there has the anchor #again-2"),
        ("[a](#never)", "#never: no heading there has the anchor #never"),
        ("`code` and [a](missing.md)", "missing.md: there is no such file"),
    ],
)
def test_a_link_that_leads_nowhere_is_an_error(folder: Path, link: str, message: str) -> None:
    (folder / "a.md").write_text(f"# Title\n\n{link}\n")
    assert check(folder, "a.md") == (1, [f"a.md:3: {message}"])


def test_line_numbers_count_code_blocks(folder: Path) -> None:
    (folder / "a.md").write_text("# Title\n\n````text\n```\n[a](in_code.md)\n````\n\n[a](missing.md)\n")
    assert check(folder, "a.md") == (1, ["a.md:8: missing.md: there is no such file"])


def test_paths_are_relative_to_the_document(folder: Path) -> None:
    (folder / "guide" / "more.md").write_text("[a](steps.md) [b](../guide/steps.md)\n[c](guide/steps.md)\n")
    assert check(folder, "guide/more.md") == (1, ["guide/more.md:2: guide/steps.md: there is no such file"])


def test_without_arguments_tracked_documents_are_checked(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("ignored.md\n")
    for name in ("ignored.md", "new.md"):
        (folder / name).write_text("[a](missing.md)\n")
    assert check(folder) == (1, ["new.md:1: missing.md: there is no such file"])


def test_a_document_that_does_not_exist_is_an_error(folder: Path) -> None:
    assert check(folder, "missing.md") == (1, ["missing.md: there is no such file"])
