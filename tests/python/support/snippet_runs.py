"""Runs the Python and shell snippets of one document, in a process of its own and an empty folder."""

import linecache
import os
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from support.snippets import RUN, Snippet, SnippetError, problem_with, snippets_of

ROOT = Path(__file__).resolve().parents[3]
# What tests say to the library, and what users say, is not what a reader of a document has said.
KEPT = {"RECOMPUTE_LIBRARY"}
LINKED = ("benchmarks", "build", "examples")  # folders of the repository that commands name


@contextmanager
def printed(to: list[str]) -> Iterator[None]:
    """Appends what is written to standard output and standard error meanwhile, by whatever language, to ``to``."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(descriptor) for descriptor in (1, 2)]
    with tempfile.TemporaryFile() as file, os.fdopen(os.dup(file.fileno()), "w", buffering=1) as ours:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
        try:
            with redirect_stdout(ours), redirect_stderr(ours):  # which pytest may have replaced
                yield
        finally:
            for descriptor, saved in zip((1, 2), before, strict=True):
                os.dup2(saved, descriptor)
                os.close(saved)
            file.seek(0)
            to.append(file.read().decode(errors="replace"))


def _run_python(snippet: Snippet, module: types.ModuleType) -> None:
    if snippet.file:
        Path(snippet.file).write_text(snippet.text(), encoding="utf-8")
        return
    # With the lines of the document before it, so that tracebacks and TorchScript find the source there.
    source = "\n" * (snippet.line - 1) + snippet.text()
    before = set(vars(module))
    exec(compile(source, str(snippet.page), "exec"), vars(module))
    for name in sorted(set(vars(module)) - before):
        if name.startswith("test_"):
            vars(module)[name]()


def _run_shell(snippet: Snippet) -> None:
    ours = os.pathsep.join([str(ROOT / "build"), str(Path(sys.executable).parent)])
    environment = {
        **os.environ,
        "PATH": f"{ours}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "1",
    }
    finished = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", snippet.text()], env=environment, check=False, stdin=subprocess.DEVNULL
    )
    if finished.returncode:
        raise SnippetError(f"the exit status is {finished.returncode}")


def _run(snippet: Snippet, module: types.ModuleType) -> tuple[str, str | None]:
    """Returns what the snippet printed, and what went wrong if something did."""
    from support import snippet_setups

    output: list[str] = []
    problem = None
    try:
        for name in snippet.setups:
            vars(module).update(getattr(snippet_setups, name)())
        with printed(output):
            _run_python(snippet, module) if RUN[snippet.language] == "python" else _run_shell(snippet)
    except (Exception, SystemExit) as error:
        trace = "" if isinstance(error, SnippetError) else traceback.format_exc(limit=-3)
        problem = f"{type(error).__name__}: {error}\n{trace}{''.join(output)}"
    return "".join(output), problem


def problems_of(page: Path) -> list[str]:
    """Runs the snippets of a page in the present folder. Returns one text for each that fails or prints another one."""
    for folder in LINKED:
        Path(folder).symlink_to(ROOT / folder)
    module = types.ModuleType(f"document_{page.stem}")
    sys.modules[module.__name__] = module
    problems: list[str] = []
    output: str | None = None
    for snippet in snippets_of(page):
        if snippet.runs and RUN[snippet.language] == "cpp":
            output = None  # these run together with those of other pages
        elif snippet.runs:
            output, problem = _run(snippet, module)
            if problem:
                problems.append(f"{snippet.place}: {problem}")
        elif snippet.prints and output is not None and (problem := problem_with(snippet, output)):
            problems.append(problem)
    return problems


def run_page(page: Path, folder: str, answer: Any) -> None:
    """What the process of a page runs: sends the problems through the connection ``answer``."""
    import torch

    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("RECOMPUTE") and name not in KEPT]:
        del os.environ[name]
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated")
    torch.set_num_threads(1)  # two that wait for each other take much longer where other tests run
    torch.manual_seed(0)
    linecache.checkcache()
    try:
        answer.send(problems_of(page))
    except SnippetError as error:
        answer.send([str(error)])
