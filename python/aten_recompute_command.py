"""Starts the command ``aten-recompute`` of an installed package.

The command is a program that needs no Python but LibTorch, which a wheel does not contain. It lies beside the library
for the same minor version of ``torch``. This script finds that version without importing ``torch``, which would take
longer than most commands, and then runs the program in its own place.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

_BAD_FILE = 3  # the exit status of a file that is missing, in docs/command.md
_NAME = "aten-recompute"


def _fail(message: str) -> NoReturn:
    print(f"{_NAME}: {message}", file=sys.stderr)
    sys.exit(_BAD_FILE)


def _folder_of(package: str) -> Path:
    """Returns the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        _fail(f"{sys.executable} has no package {package}: install it there")
    return Path(spec.submodule_search_locations[0])


def _minor_version(torch: Path) -> str:
    """Returns the version of a torch package without what comes after the second number, such as 2.13."""
    file = torch / "version.py"
    found = re.search(r"^__version__ = '(\d+\.\d+)", file.read_text() if file.is_file() else "", re.MULTILINE)
    if found is None:
        _fail(f"{file} names no version of torch")
    return found[1]


def program(package: Path, torch: Path) -> Path:
    """Returns the program for a torch package.

    It is the one in the package, or the one in ``build`` of a source tree. Ends this process with one line if there is
    none.
    """
    minor = _minor_version(torch)
    for candidate in (package / "lib" / f"torch-{minor}" / _NAME, package.parents[1] / "build" / _NAME):
        if os.access(candidate, os.X_OK):
            return candidate
    others = sorted(path.parent.name.removeprefix("torch-") for path in package.glob(f"lib/torch-*/{_NAME}"))
    if not others:
        _fail(f"{package} was installed without the command")
    _fail(f"this is torch {minor}, and {package} has the command for torch {', '.join(others)} only")


def environment(package: Path, torch: Path) -> dict[str, str]:
    """Returns the environment in which the program finds LibTorch.

    It looks beside its own package by itself. A torch package in another folder has to be named.
    """
    found = dict(os.environ)
    if torch.resolve() != (package.parent / "torch").resolve():
        before = found.get("LD_LIBRARY_PATH")
        found["LD_LIBRARY_PATH"] = os.pathsep.join([str(torch / "lib"), *([before] if before else [])])
    return found


def main() -> NoReturn:
    """Runs the program with the arguments of this script."""
    package, torch = _folder_of("aten_recompute"), _folder_of("torch")
    path = program(package, torch)
    try:
        os.execve(path, [_NAME, *sys.argv[1:]], environment(package, torch))
    except OSError as error:
        _fail(f"{path} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
