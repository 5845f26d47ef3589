#!/usr/bin/env python3
"""Checks who includes whom: a C++ source file includes only what stands in its own folder or in a lower one.

    tools/check_includes.py [ROOT]

The folders and their order are ``LAYERS``; docs/design.md says what belongs into each. Every include that points
upwards or sideways is printed as ``file:line: message``, and the exit status is then 1. So is every circle between the
files of a folder: ``a.h`` and ``a.cpp`` count as one file there. An include in quotes that names no file of the
repository is an error, too, because it would escape the check.
"""

import graphlib
import re
import sys
from pathlib import Path
from typing import NamedTuple

# From the lowest to the highest. Folders in one row do not know each other.
LAYERS = (
    ("common",),
    ("planner/addresses", "planner/model", "planner/graph"),
    ("planner/search",),
    ("planner",),
    ("ir",),
    ("runtime/arena",),
    ("runtime",),
    ("rules/kernels/vector",),
    ("rules/kernels",),
    ("rules",),
    ("passes/manager",),
    ("passes/frontend/rewrites",),
    ("passes/frontend/path",),
    ("passes/frontend/regions",),
    ("passes/frontend",),
    ("passes/autodiff",),
    ("passes/profile",),
    ("passes/strategy",),
    ("passes/partition",),
    ("passes/region",),
    ("passes",),
    ("backend/memory",),
    ("backend/autograd",),
    ("backend/planning",),
    ("backend/region", "backend/pictures"),
    ("backend/method",),
    ("backend/estimate",),
    ("register",),
    ("command",),
)

# Folders that see only a part of what stands below them. The command uses the public headers, which are no folder of
# this list, and what knows nothing of LibTorch.
ONLY: dict[str, set[str]] = {
    "command": {"common"},
    "planner/addresses": {"common", "planner/addresses"},
    "planner/model": {"common", "planner/model"},
    "planner/graph": {"common", "planner/graph"},
    "planner/search": {"common", "planner/model", "planner/graph", "planner/search"},
    "rules/kernels/vector": {"rules/kernels/vector"},
}

# Passes are called from outside through what stands in passes/ itself.
_ALL = {folder for row in LAYERS for folder in row}
ONLY |= {
    folder: {other for other in _ALL if not other.startswith("passes/")}
    for folder in _ALL
    if folder.startswith(("backend/", "register"))
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
RANK = {folder: rank for rank, row in enumerate(LAYERS) for folder in row}
TOP_FOLDERS = sorted({folder.split("/")[0] for folder in RANK})


def problem_with(source: str, included: str, root: Path) -> str | None:
    """Says what is wrong with this include, or returns None. Both paths are relative to the root."""
    if not (root / included).is_file():
        return f'"{included}" is no file of this repository; write the path from the root, or use <> for a library'
    own, other = str(Path(source).parent), str(Path(included).parent)
    if own not in RANK:
        return f"the folder {own}/ has no place in LAYERS of tools/check_includes.py"
    if other not in RANK:
        return f'"{included}": the folder {other}/ has no place in LAYERS of tools/check_includes.py'
    if own == other:
        return None
    if RANK[other] >= RANK[own]:
        return f'{own}/ must not include "{included}": {other}/ does not stand below it'
    if other not in ONLY.get(own, {other}):
        return f'{own}/ must not include "{included}": the folder {other}/ is not one that it may know'
    return None


class _Include(NamedTuple):
    source: str
    line: int
    included: str


def _stem(path: str) -> str:
    """Returns the name of a header and its source file together."""
    return path.rsplit(".", 1)[0]


def circles(includes: list[_Include]) -> list[str]:
    """Returns one line for each circle between files of one folder, which names the include that closes it."""
    within: dict[str, dict[str, _Include]] = {}
    for include in includes:
        own, other = _stem(include.source), _stem(include.included)
        if own != other and Path(own).parent == Path(other).parent:
            within.setdefault(own, {})[other] = include
    problems = []
    while circle := _circle({own: set(others) for own, others in within.items()}):
        closing = within[circle[-2]].pop(circle[-1])
        chain = " -> ".join(Path(file).name for file in circle)
        problems.append(f"{closing.source}:{closing.line}: this include closes a circle: {chain}")
    return problems


def _circle(within: dict[str, set[str]]) -> list[str]:
    """Returns a circle, in which each file includes the next one and the last is the first, or an empty list."""
    try:
        graphlib.TopologicalSorter(within).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def check(root: Path) -> list[str]:
    """Returns one line for each include that breaks the rule."""
    problems = []
    includes = []
    files = [path for folder in TOP_FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp")]
    if not files:
        return [f"{root}: no source files here; the argument is the root of the repository"]
    for path in sorted(files):
        source = str(path.relative_to(root))
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if match := INCLUDE.match(line):
                includes.append(_Include(source, number, match.group(1)))
                problem = problem_with(source, match.group(1), root)
                if problem:
                    problems.append(f"{source}:{number}: {problem}")
    return problems + circles(includes)


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
