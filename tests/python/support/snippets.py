"""Reads the snippets of a Markdown document, with the marks that say how a test runs them.

A mark is an HTML comment right above a fenced block, which no reader of the page sees:

    <!-- snippet: setup gpt -->          run the function gpt() of support/snippet_setups.py first, or for C++ what
                                         stands under // gpt in support/snippet_setups.h
    <!-- snippet: not run: REASON -->    the snippet cannot run in a test
    <!-- snippet: with A for B -->       where the snippet says B, the test says A
    <!-- snippet: file NAME -->          the block is the content of this file, which snippets after it use
    <!-- snippet: prints -->             this text is what the snippet before prints
    <!-- snippet: varies: REGEX -->      what matches this in the text, and in what is printed, need not be equal

Whatever no mark excepts is run: each block of Python, C++ and shell.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import torch
from markdown_it import MarkdownIt

SETUP = Path(__file__).resolve().parents[3] / "tools" / "setup.sh"
MARK = re.compile(r"<!-- snippet: (.*?) -->", re.DOTALL)
RUN = {"python": "python", "cpp": "cpp", "sh": "shell", "bash": "shell"}
NEVER_RUN = {"text", "cmake", "json"}
TIMESTAMP = r"^\[\d{4}-\d\d-\d\d [\d:.]+\] "  # of the log
DURATION = r"\d[\d.,]*(?:e-?\d+)? ?(?:ns|us|µs|ms|s|min)\b"


class SnippetError(Exception):
    """A document has a mark or a block that no test knows what to do with."""


@dataclass
class Snippet:
    """A fenced block. ``line`` is the number of its first line of code in ``page``, from 1."""

    page: Path
    line: int
    language: str
    code: str
    setups: list[str] = field(default_factory=list)
    not_run: str = ""
    file: str = ""
    replacements: list[tuple[str, str]] = field(default_factory=list)
    prints: bool = False
    varies: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUN and not self.not_run

    def text(self) -> str:
        """Returns the code as it is run."""
        code = self.code
        for replacement, original in self.replacements:
            if original not in code:
                raise SnippetError(f"{self.place}: a mark replaces {original}, which the snippet does not have")
            code = code.replace(original, replacement)
        return code


def snippets_of(page: Path) -> list[Snippet]:
    """Returns all fenced blocks of a document in their order.

    Raises:
        SnippetError: a mark stands above no block, or says what no test knows; a block has an unknown language.
    """
    found: list[Snippet] = []
    marks: list[str] = []
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block" and (each := MARK.findall(token.content)):
            marks += [" ".join(mark.split()) for mark in each]
        elif token.type == "fence":
            assert token.map is not None
            snippet = Snippet(page, token.map[0] + 2, token.info.strip(), token.content)
            for mark in marks:
                _apply(mark, snippet)
            marks = []
            _check(snippet, found)
            found.append(snippet)
        elif marks:
            raise SnippetError(f"{page.name}: no fenced block follows the mark: snippet: {marks[0]}")
    if marks:
        raise SnippetError(f"{page.name}: no fenced block follows the mark: snippet: {marks[0]}")
    return found


def _apply(mark: str, snippet: Snippet) -> None:
    if match := re.fullmatch(r"setup (\w+)", mark):
        snippet.setups.append(match[1])
    elif match := re.fullmatch(r"not run: (.+)", mark):
        snippet.not_run = match[1]
    elif match := re.fullmatch(r"with (.+) for (.+)", mark):
        snippet.replacements.append((match[1], match[2]))
    elif match := re.fullmatch(r"file ([\w.]+)", mark):
        snippet.file = match[1]
    elif mark == "prints":
        snippet.prints = True
    elif match := re.fullmatch(r"varies: (.+)", mark):
        snippet.varies.append(match[1])
    else:
        raise SnippetError(f"{snippet.place}: a mark that no test knows: snippet: {mark}")


def _check(snippet: Snippet, before: list[Snippet]) -> None:
    if snippet.language not in RUN and snippet.language not in NEVER_RUN:
        raise SnippetError(f"{snippet.place}: a block of the language {snippet.language!r}, which no test knows")
    if snippet.language not in RUN and (snippet.not_run or snippet.setups or snippet.replacements):
        raise SnippetError(f"{snippet.place}: a block of text is not run, so its mark has no effect")
    if snippet.varies and not snippet.prints:
        raise SnippetError(f"{snippet.place}: only a text that is printed varies")
    if snippet.prints and (snippet.language != "text" or not before or not before[-1].runs):
        raise SnippetError(f"{snippet.place}: a printed text follows a snippet that runs, in a block of text")


def comparable() -> bool:
    """Returns whether PyTorch is of the version that `make setup` installs, whose figures the documents show.

    With others snippets run, too, but plans, source lines and what PyTorch says may differ.
    """
    (version,) = re.findall(r"(?m)^torch_version=(\d+\.\d+)", SETUP.read_text(encoding="utf-8"))
    return torch.__version__.startswith(f"{version}.")


def difference(expected: str, printed: str, varies: list[str]) -> str | None:
    """Says where a printed text is not the expected one; None if it is.

    ``...`` in a line stands for any characters, and alone in a line for any lines. Durations need not be equal, nor
    does what matches one of the expressions in ``varies``. How many spaces stand between words does not matter.
    """
    wanted, lines = ([_plain(line, varies) for line in text.strip().splitlines()] for text in (expected, printed))
    lines = [line for line in lines if line]
    wanted = [line for line in wanted if line]
    position, may_skip = 0, False
    for line in wanted:
        if line == "...":
            may_skip = True
            continue
        pattern = ".*".join(re.escape(part) for part in line.split("..."))
        end = len(lines) if may_skip else min(position + 1, len(lines))
        matching = [index for index in range(position, end) if re.fullmatch(pattern, lines[index])]
        if not matching:
            here = lines[position] if position < len(lines) else "the end of what is printed"
            return f"expected: {line}\nfound:    {here}\nin what is printed:\n{printed}"
        position, may_skip = matching[0] + 1, False
    if position < len(lines) and not may_skip:
        return f"not expected: {lines[position]}\nin what is printed:\n{printed}"
    return None


def _plain(line: str, varies: list[str]) -> str:
    line = re.sub(DURATION, "<time>", re.sub(TIMESTAMP, "", line.rstrip()))
    for pattern in varies:
        line = re.sub(pattern, "<varies>", line)
    return " ".join(line.split())


def problem_with(text: Snippet, printed: str) -> str | None:
    """Says how a text differs from what the snippet before it prints; None if it does not, or cannot be compared."""
    found = difference(text.code, printed, text.varies) if comparable() else None
    return f"{text.place}: this is not what the snippet before prints\n{found}" if found else None
