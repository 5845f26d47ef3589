"""Every snippet of the README and of docs/ runs, and prints what the document says that it prints.

Marks in the Markdown (support/snippets.py) say what a snippet takes for granted, and which cannot run in a test.
"""

import multiprocessing
from pathlib import Path

import pytest

from support.snippet_programs import problems_of_programs
from support.snippet_runs import run_page
from support.snippets import RUN, Snippet, snippets_of

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
WITH_SNIPPETS = [page for page in PAGES if any(each.runs and RUN[each.language] != "cpp" for each in snippets_of(page))]
LIMIT = 600  # seconds for one page, which takes less than 20 where nothing else runs

# Processes are forked from one that has imported what takes seconds, and nothing else.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["torch", "aten_recompute"])


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name_of)
def test_snippets_of_python_and_shell_run(page: Path, tmp_path: Path) -> None:
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=run_page, args=(page, str(tmp_path), theirs))
    process.start()
    theirs.close()
    try:
        assert ours.poll(LIMIT), f"{name_of(page)}: not done after {LIMIT} seconds"
        problems = ours.recv()
    except EOFError:
        process.join(10)
        problems = [f"{name_of(page)}: the process that runs the snippets died with exit code {process.exitcode}"]
    finally:
        if process.is_alive():
            process.join(10)
            process.kill()
        process.join()
    assert not problems, "\n\n".join(problems)


def test_snippets_of_cpp_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from support import snippet_setups

    monkeypatch.chdir(tmp_path)
    snippet_setups.cpp_files()
    programs: list[Snippet] = []
    printed: dict[int, Snippet] = {}
    for page in PAGES:
        previous: Snippet | None = None
        for snippet in snippets_of(page):
            if snippet.runs and RUN[snippet.language] == "cpp":
                programs.append(snippet)
            elif snippet.prints and previous is not None and previous is programs[-1]:
                printed[len(programs) - 1] = snippet
            previous = snippet
    assert len(programs) > 5
    problems = problems_of_programs(programs, printed, tmp_path)
    assert not problems, "\n\n".join(problems)


def test_few_snippets_are_excepted_each_with_a_reason() -> None:
    snippets = [each for page in PAGES for each in snippets_of(page) if each.language in RUN]
    excepted = [each for each in snippets if each.not_run]
    assert all(len(each.not_run.split()) > 3 for each in excepted)
    assert len(excepted) < len(snippets) / 3
    # What cannot run here builds or installs the project, or takes hours, or is a part of a larger program.
    assert all(each.language in ("sh", "bash") for each in excepted), [each.place for each in excepted]
