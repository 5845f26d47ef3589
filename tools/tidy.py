#!/usr/bin/env python3
"""Reads C++ sources with clang-tidy, those of one folder together.

    tools/tidy.py [--jobs N] [--line-filter JSON] BUILD FILE...

BUILD is a folder with compile_commands.json. Nearly all of the time that clang-tidy takes for a source goes into the
headers of LibTorch, so up to twelve sources of a folder are copied into one file, and the headers are read once for
them. Sources that cannot be compiled together, since both give the same name to something of their own, are read in
two halves; a source that cannot be compiled alone is reported. Prints what is found; the exit status is 1 if anything
is found, otherwise 0.
"""

import argparse
import json
import re
import subprocess
import sys
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
LARGEST_GROUP = 12


def groups(files: list[str]) -> list[list[str]]:
    """Returns the sources of each folder in groups of at most LARGEST_GROUP, of about the same size."""
    found = []
    for _, of_folder in groupby(sorted(set(files)), key=lambda file: Path(file).parent):
        folder = list(of_folder)
        count = -(-len(folder) // LARGEST_GROUP)
        found += [folder[at::count] for at in range(count)]
    return found


class Reader:
    """Runs clang-tidy on groups of sources. Thread-safe."""

    def __init__(self, build: Path, line_filter: list[dict[str, Any]]) -> None:
        commands = json.loads((build / "compile_commands.json").read_text())
        self.commands = {str(Path(entry["file"]).relative_to(ROOT)): entry for entry in commands}
        self.folder = build / "groups"
        self.line_filter = line_filter

    def read(self, group: list[str]) -> str:
        """Returns what clang-tidy finds in the sources of the group and their headers, or an empty string."""
        folder = self.folder / group[0].replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        together = folder / "together.cpp"
        # The analyzer reads functions of the main file only, so that the sources are copied and not included.
        first_lines: list[int] = []
        lines: list[str] = []
        for file in group:
            first_lines.append(len(lines))
            lines += (ROOT / file).read_text().splitlines()
        together.write_text("\n".join(lines) + "\n")
        command = self.commands[group[0]]["command"].replace(str(ROOT / group[0]), str(together))
        entry = {"directory": str(ROOT), "command": command, "file": str(together)}
        (folder / "compile_commands.json").write_text(json.dumps([entry]))
        of_group = json.dumps(filter_of_group(self.line_filter, group, first_lines, together))
        done = subprocess.run(
            [
                "clang-tidy",
                "--quiet",
                f"--config-file={ROOT / '.clang-tidy'}",
                f"--checks={checks_of(Path(group[0]).parent)}",
                f"--line-filter={of_group if self.line_filter else ''}",
                "-p",
                str(folder),
                str(together),
            ],
            capture_output=True,
            text=True,
        )
        if "clang-diagnostic-error" in done.stdout and len(group) > 1:
            half = len(group) // 2
            return self.read(group[:half]) + self.read(group[half:])
        if done.returncode == 0:
            return ""

        def place(match: re.Match[str]) -> str:
            line = int(match[1])
            at = bisect_left(first_lines, line) - 1
            return f"{ROOT / group[at]}:{line - first_lines[at]}:"

        return re.sub(rf"{re.escape(str(together))}:(\d+):", place, done.stdout) or done.stderr


def checks_of(folder: Path) -> str:
    """Returns what the folder's own .clang-tidy adds to the checks, as the common file lies in another folder."""
    own = ROOT / folder / ".clang-tidy"
    found = re.search(r"^Checks: (.*)$", own.read_text(), re.MULTILINE) if own.is_file() else None
    return found[1] if found else ""


def filter_of_group(
    line_filter: list[dict[str, Any]], group: list[str], first_lines: list[int], together: Path
) -> list[dict[str, Any]]:
    """Returns a line filter whose entries of sources in the group hold for their lines in the common file."""
    others = [entry for entry in line_filter if entry["name"] not in group]
    lines = [
        [line + first_lines[group.index(entry["name"])] for line in stretch]
        for entry in line_filter
        if entry["name"] in group
        for stretch in entry["lines"]
    ]
    return [*others, {"name": str(together), "lines": lines}] if lines else others


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="groups to read at once (default: 1)")
    parser.add_argument(
        "--line-filter", default="", metavar="JSON", help="the lines to report, as clang-tidy takes them"
    )
    parser.add_argument("build", type=Path, metavar="BUILD")
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    reader = Reader(arguments.build.resolve(), json.loads(arguments.line_filter or "[]"))
    unknown = [file for file in arguments.files if file not in reader.commands]
    if unknown:
        print(f"error: {unknown[0]} is not a source of the build in {arguments.build}", file=sys.stderr)
        return 1
    found = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        work = groups(arguments.files)
        for text in tqdm(pool.map(reader.read, work), total=len(work), desc="clang-tidy", unit="group", disable=None):
            if text:
                found = True
                tqdm.write(text.rstrip())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
