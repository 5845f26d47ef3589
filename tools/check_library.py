#!/usr/bin/env python3
"""Checks what a built library needs of the system, and what it shows to programs.

    tools/check_library.py build/libaten_recompute.so [more libraries]

For each library this prints the libraries that it needs, the newest version of each group of symbols, and the oldest
system that has them, as wheels name it. It ends with status 1 if a library needs another one than LibTorch and those of
the C++ runtime, or shows another name than those that the headers in ``include/`` declare.

``nm`` and ``readelf`` of the binutils are needed.
"""

import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The libraries of LibTorch, and those that PEP 600 lets every wheel for Linux expect.
ALLOWED = {
    *("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so"),
    *("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"),
    "ld-linux-x86-64.so.2",
}

# The newest versions of the symbols of the C++ runtime that a wheel for a system with this glibc may need: the table of
# auditwheel, for x86-64.
POLICIES = {
    (2, 28): {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)},
    (2, 31): {"GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12), "GCC": (7, 0, 0)},
    (2, 34): {"GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)},
    (2, 35): {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)},
    (2, 36): {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)},
    (2, 39): {"GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)},
}

# A C name, and a constructor that a header declares inside of its class.
SHOWN_BESIDES = {"aten_recompute_torch_version", "aten_recompute::RuleFunction::RuleFunction"}

Version = tuple[int, ...]


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed_libraries(library: Path) -> list[str]:
    """Returns the names of the libraries that the loader looks for."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _output("readelf", "--dynamic", "--wide", str(library)))


def needed_versions(library: Path) -> dict[str, Version]:
    """Returns the newest version that is needed of each group of symbols, such as GLIBC."""
    newest: dict[str, Version] = {}
    for name, version in re.findall(
        r"Name: ([A-Z]+)_([\d.]+)\b", _output("readelf", "--version-info", "--wide", str(library))
    ):
        newest[name] = max(newest.get(name, ()), tuple(int(part) for part in version.split(".")))
    return newest


def platform_tag(libraries: Iterable[Path]) -> str:
    """Returns the platform of a wheel with these libraries, such as manylinux_2_35_x86_64.

    Raises:
        ValueError: no system in the table has the versions of symbols that a library needs.
    """
    needed: dict[str, Version] = {}
    for library in libraries:
        for name, version in needed_versions(library).items():
            needed[name] = max(needed.get(name, ()), version)
    for glibc, runtime in POLICIES.items():
        if all(version <= (runtime | {"GLIBC": glibc}).get(name, ()) for name, version in needed.items()):
            return f"manylinux_{glibc[0]}_{glibc[1]}_x86_64"
    raise ValueError(f"no manylinux platform has {_show(needed)}; the table is in {Path(__file__).name}")


def shown_names(library: Path) -> dict[str, set[str]]:
    """Returns the names that a program can use, C++ functions without their parameters.

    With each name come the names of this project's that stand in its parameters.
    """
    names: dict[str, set[str]] = {}
    for line in _output("nm", "--dynamic", "--demangle", "--defined-only", str(library)).splitlines():
        name, _, parameters = line.split(maxsplit=2)[2].partition("(")
        names.setdefault(re.sub(r"\[abi:\w+\]", "", name), set()).update(
            re.findall(r"\baten_recompute::[\w:]+", parameters)
        )
    return names


def declared_names(folder: Path = ROOT / "include" / "aten_recompute") -> tuple[set[str], set[str]]:
    """Returns the functions that the public headers declare and do not define, and the types that they declare."""
    functions, types = set(), set()
    for header in sorted(folder.glob("*.h")):
        text = header.read_text()
        namespace = re.findall(r"^namespace (aten_recompute[\w:]*) \{", text, re.MULTILINE)[0]
        # A declaration begins at the begin of a line, and a definition is marked as inline.
        pattern = r"^(?!inline\b|namespace\b|struct\b|class\b)[A-Za-z][\w:<>, *&]*?\b(\w+)\("
        functions |= {f"{namespace}::{name}" for name in re.findall(pattern, text, re.MULTILINE)}
        types |= {f"{namespace}::{name}" for name in re.findall(r"^(?:struct|class) (\w+) \{", text, re.MULTILINE)}
    return functions, types


@functools.cache
def error_names(header: Path = ROOT / "include" / "aten_recompute" / "errors.h") -> re.Pattern[str]:
    """Returns a pattern of the names that belong to classes of errors.

    Programs need what throws and copies these classes, and their types, by which they catch them.
    """
    classes = re.findall(r"^class (\w+) (?:: public [^{]+)?\{", header.read_text(), re.MULTILINE)
    own = "|".join(f"aten_recompute::{each}" for each in classes if each != "ErrorOf")
    base = rf"aten_recompute::detail::ErrorOf<(?:{own})>"
    return re.compile(rf"(?:typeinfo(?: name)?|vtable) for (?:{own}|{base})|(?:{own}|{base})::\w+")


def is_of_an_error(name: str) -> bool:
    """Returns whether a name belongs to a class of errors."""
    return error_names().fullmatch(name) is not None


def problems(library: Path) -> list[str]:
    """Returns what is wrong with a library, one line for each thing; nothing if all is well."""
    found = [f"needs {name}" for name in needed_libraries(library) if name not in ALLOWED]
    functions, types = declared_names()
    allowed = functions | SHOWN_BESIDES
    shown = {name: types for name, types in shown_names(library).items() if not is_of_an_error(name)}
    found += [f"shows {name}, which no header declares" for name in sorted(shown.keys() - allowed)]
    for name in sorted(shown.keys() & allowed):
        found += [f"shows {name} of {each}, which no header declares" for each in sorted(shown[name] - types)]
    found += [f"does not show {name}" for name in sorted(allowed - shown.keys())]
    return found


def problems_of_program(program: Path) -> list[str]:
    """Returns what is wrong with a program that uses the library, one line for each thing; nothing if all is well."""
    allowed = {*ALLOWED, "libaten_recompute.so"}
    return [f"needs {name}" for name in needed_libraries(program) if name not in allowed]


def _show(versions: dict[str, Version]) -> str:
    return ", ".join(f"{name} {'.'.join(map(str, version))}" for name, version in sorted(versions.items()))


def main(arguments: Sequence[str]) -> int:
    """Prints what the libraries need, and what is wrong. Returns the exit status."""
    if not arguments:
        print("check_library: name the libraries to check, such as build/libaten_recompute.so", file=sys.stderr)
        return 2
    status = 0
    for argument in arguments:
        library = Path(argument)
        if not library.is_file():
            print(f"check_library: there is no file {library}", file=sys.stderr)
            return 2
        print(f"{library}: needs {', '.join(sorted(needed_libraries(library)))}")
        print(f"{library}: needs {_show(needed_versions(library))}, so it runs on {platform_tag([library])}")
        for problem in problems(library):
            print(f"{library}: {problem}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
