#!/usr/bin/env python3
"""Checks that what the sources of a folder define in a namespace without a name has different names.

    tools/check_names.py [ROOT]

CMake may compile the sources of a folder together (ATEN_RECOMPUTE_UNITY). Two functions of one name are then one
overloaded function, and a call in one source can reach that of the other, without a word if its parameters fit better.
Each name that two sources define is printed as ``file:line: message``, and the exit status is then 1. Aliases
(``using Clock = ...``) may be repeated, because the compiler refuses two that differ.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

# Folders whose sources are compiled together.
FOLDERS = ("planner", "ir", "runtime", "rules", "passes", "backend", "register", "command", "tests/cpp")
# Folders below these that are never compiled together.
ALONE = ("rules/kernels/vector",)

_UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.DOTALL | re.MULTILINE)
# A definition begins in the first column, after the type of its result or value.
_DEFINITIONS = (
    re.compile(r"^(?! )(?:[\w:<>,&*\[\] ]+[ &*])(\w+)\([^;{}]*?\)[^;{}]*\{", re.MULTILINE),
    re.compile(r"^(?:struct|class|enum class) (\w+)[^;]*?\{", re.MULTILINE),
    re.compile(r"^(?:constexpr|const|static) [\w:<>, *]*?(\w+)(?:\[\])?(?:\{|\(| = )", re.MULTILINE),
)


def definitions(text: str) -> dict[str, int]:
    """Returns the names that a source defines in a namespace without a name, with their lines."""
    found: dict[str, int] = {}
    for unnamed in _UNNAMED.finditer(text):
        for pattern in _DEFINITIONS:
            for match in pattern.finditer(unnamed[1]):
                found.setdefault(match[1], 1 + text.count("\n", 0, unnamed.start(1) + match.start(1)))
    return found


def problems(root: Path) -> list[str]:
    """Returns a line for each name that an earlier source of the same folder defines, too."""
    lines = []
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for folder in FOLDERS:
        for source in sorted((root / folder).rglob("*.cpp")):
            if not any(source.is_relative_to(root / alone) for alone in ALONE):
                by_folder[source.parent].append(source)
    for sources in by_folder.values():
        defined: dict[str, Path] = {}
        for source in sources:
            for name, line in definitions(source.read_text()).items():
                if name in defined:
                    lines.append(
                        f"{source.relative_to(root)}:{line}: {name} is also defined in {defined[name].name}, "
                        "which may be compiled together with this: give it another name, or share one"
                    )
                defined.setdefault(name, source)
    return lines


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    lines = problems(root)
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
