#!/usr/bin/env python3
"""Prints which lines of the library's C++ files differ from a commit, as clang-tidy's ``--line-filter`` takes them.

    tools/changed_lines.py [--sources] [COMMIT]

The commit is by default the merge base with the target of a pull request (``GITHUB_BASE_REF``), otherwise the parent
commit. Changes that are not committed count, and so do new files. ``--sources`` prints the source files to read, one a
line: a header stands for the source file beside it. Where there is no such commit, as in a clone of depth one, one line
says so and the exit status is 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

LIBRARY = ("common", "planner", "ir", "runtime", "rules", "passes", "backend", "register")
FILE = re.compile(r"\+\+\+ b/(.*)")
HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
LAST_LINE = 1_000_000  # of a new file: all of its lines differ


def git(*arguments: str) -> str:
    """Returns what git prints; throws CalledProcessError if it fails."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def base_commit() -> str:
    """Returns the commit to compare with."""
    if target := os.environ.get("GITHUB_BASE_REF"):
        return git("merge-base", "HEAD", f"origin/{target}").strip()
    return "HEAD^"


def changed_lines(base: str) -> dict[str, list[tuple[int, int]]]:
    """Returns the changed stretches of each C++ file of the library that is there, first and last line of each."""
    changed: dict[str, list[tuple[int, int]]] = {}
    settings = ("-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false")
    diff = git(*settings, "diff", "--no-color", "--no-ext-diff", "-U0", "--diff-filter=d", base, "--", *LIBRARY)
    file = ""
    for line in diff.splitlines():
        if match := FILE.fullmatch(line):
            file = match[1]
        elif match := HUNK.match(line):
            first, count = int(match[1]), int(match[2] or 1)
            if count > 0:
                changed.setdefault(file, []).append((first, first + count - 1))
    for file in git("ls-files", "--others", "--exclude-standard", "--", *LIBRARY).splitlines():
        changed[file] = [(1, LAST_LINE)]
    return {file: lines for file, lines in sorted(changed.items()) if file.endswith((".h", ".cpp"))}


def sources(files: list[str]) -> list[str]:
    """Returns the files to compile in order to read these."""
    beside = {str(Path(file).with_suffix(".cpp")) for file in files}
    return sorted(file for file in beside if Path(file).is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", action="store_true", help="print the source files instead of the filter")
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    arguments = parser.parse_args()
    try:
        base = arguments.commit or base_commit()
        git("rev-parse", "--quiet", "--verify", f"{base}^{{commit}}")
    except subprocess.CalledProcessError:
        print("there is no commit to compare with", file=sys.stderr)
        return 1
    changed = changed_lines(base)
    if arguments.sources:
        for source in sources(list(changed)):
            print(source)
    else:
        print(json.dumps([{"name": file, "lines": lines} for file, lines in changed.items()], separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
