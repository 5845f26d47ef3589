#!/usr/bin/env python3
"""Checks that each relative link in a Markdown file leads to a file or folder, and to a heading if it has a fragment.

    tools/check_links.py [FILE ...]

Without arguments, all Markdown files that git tracks or would add are checked. Every link that leads nowhere is printed
as ``file:line: message``, and the exit status is then 1. Links with a scheme, such as ``https:``, are not followed.
"""

import functools
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

# [text](target), [text](target "title") and [name]: target. The text may hold brackets: [![image](a.svg)](b.md).
INLINE = re.compile(r'\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)')
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*$")
FENCE = re.compile(r"^\s*(```+|~~~+)")


def prose(text: str) -> list[str]:
    """Returns the lines of a Markdown text, those of code blocks empty, so that line numbers stay."""
    lines, fence = [], None
    for line in text.splitlines():
        match = FENCE.match(line)
        if fence is not None:
            lines.append("")
            if match and match[1].startswith(fence) and line.strip() == match[1]:
                fence = None
        elif match:
            lines.append("")
            fence = match[1]
        else:
            lines.append(line)
    return lines


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """Returns the fragments that GitHub gives to the headings of a file."""
    found: set[str] = set()
    for line in prose(path.read_text(encoding="utf-8")):
        if match := HEADING.match(line):
            title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            numbered, count = slug, 0
            while numbered in found:
                count += 1
                numbered = f"{slug}-{count}"
            found.add(numbered)
        found.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return frozenset(found)


def problem_with(file: Path, target: str) -> str | None:
    """Says where this link of the file leads to instead of a file or heading, or returns None."""
    if SCHEME.match(target):
        return None
    path, _, fragment = unquote(target).partition("#")
    if path.startswith("/"):
        return f"{target}: write the path relative to the file"
    leads_to = file.parent / path if path else file
    if not leads_to.exists():
        return f"{target}: there is no such file"
    if fragment and leads_to.suffix == ".md" and fragment not in anchors(leads_to.resolve()):
        return f"{target}: no heading there has the anchor #{fragment}"
    return None


def check(file: Path) -> list[str]:
    """Returns one line for each link of the file that leads nowhere."""
    problems = []
    for number, line in enumerate(prose(file.read_text(encoding="utf-8")), start=1):
        without_code = re.sub(r"`[^`]*`", "", line)
        found = (
            problem_with(file, target) for target in INLINE.findall(without_code) + DEFINITION.findall(without_code)
        )
        problems += [f"{file}:{number}: {problem}" for problem in found if problem]
    return problems


def tracked_files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listed.splitlines() if Path(name).exists()]


def main() -> int:
    files = [Path(name) for name in sys.argv[1:]] or tracked_files()
    missing = [file for file in files if not file.is_file()]
    problems = [f"{file}: there is no such file" for file in missing]
    problems += [problem for file in files if file not in missing for problem in check(file)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
