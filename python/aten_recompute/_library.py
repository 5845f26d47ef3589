"""Finds the shared library and loads it."""

import mmap
import os
import re
import struct
from pathlib import Path

import torch

_NAME = "libaten_recompute.so"
_PACKAGE = Path(__file__).resolve().parent
_BUILT_FOR = re.compile(rb"aten_recompute was built for torch (\d+\.\d+\.\d+)")  # in register/torch_version.cpp
_HOW_TO_BUILD = "build it with `pip install --no-build-isolation .` or `make build`"
_loaded: list[Path] = []  # the library that this process has loaded; the environment may change after that


# Where CMake looks for find_package(aten_recompute), in CMAKE_PREFIX_PATH, if the package is installed. A source tree
# has no such folder.
cmake_prefix_path = str(_PACKAGE / "share" / "cmake")


def library_path() -> Path:
    """Returns the path of the shared library that this package uses.

    That is the one that was loaded. Before, it is the first of these that exists: the library for this minor version of
    torch in the package's own ``lib`` folder, the file that the environment variable ``RECOMPUTE_LIBRARY`` names, and
    the library in ``build`` of the source tree.

    Raises:
        ImportError: none of them exists, but the package has libraries for other versions of torch; the message, one
            line, names the versions.
        FileNotFoundError: there is no library at all; the message lists the paths.
    """
    if _loaded:
        return _loaded[0]
    candidates = [_PACKAGE / "lib" / f"torch-{_minor(torch.__version__)}" / _NAME]
    named = os.environ.get("RECOMPUTE_LIBRARY") or os.environ.get("ATEN_RECOMPUTE_LIBRARY")  # the name up to 0.1
    if named:
        candidates.append(Path(named))
    candidates.append(_PACKAGE.parent.parent / "build" / _NAME)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    versions = _versions_with_library()
    if versions:
        raise ImportError(
            f"aten_recompute: this is torch {torch.__version__}, and {_PACKAGE} has a library for torch "
            f"{', '.join(versions)} only: install one of these versions, or build the library for yours from the "
            "source of aten_recompute with `pip install --no-build-isolation .`"
        )
    places = ", ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(f"{_NAME} not found (looked at {places}): run `make build`, or set RECOMPUTE_LIBRARY")


def _minor(version: str) -> str:
    """Returns a version of torch without what comes after the second number: 2.13 for 2.13.0+cpu."""
    return ".".join(version.split(".")[:2])


def _versions_with_library() -> list[str]:
    """Returns the minor versions of torch that the package has a library for, in their order."""
    found = [path.parent.name.removeprefix("torch-") for path in (_PACKAGE / "lib").glob(f"torch-*/{_NAME}")]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def load_library() -> None:
    """Loads the library into this process. A second call has no effect.

    Raises:
        FileNotFoundError: there is no library.
        ImportError: the library is damaged, or was built for another minor version of PyTorch; the message, one line,
            names both versions.
    """
    path = library_path()
    problem = _problem_of(path)
    if problem is not None:
        raise ImportError(f"aten_recompute: {path} {problem}: {_HOW_TO_BUILD}", path=str(path))
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise ImportError(
            f"aten_recompute: {path} cannot be loaded with torch {torch.__version__} ({reason}): {_HOW_TO_BUILD}",
            path=str(path),
        ) from None
    _loaded[:] = [path]


def _problem_of(path: Path) -> str | None:
    """Returns why the library cannot be loaded, where its file shows that; the loader would name a symbol instead."""
    if path.stat().st_size == 0:
        return "is empty"
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[:4] != b"\x7fELF":
            return "is no shared library"
        if _end_of_segments(content) > len(content):
            return "is cut short"
        found = _BUILT_FOR.search(content)
        built_for = None if found is None else found[1].decode()
    if built_for is None or _minor(built_for) == _minor(torch.__version__):
        return None
    return f"was built for torch {built_for}, but this is torch {torch.__version__}"


def _end_of_segments(elf: mmap.mmap) -> int:
    """Returns how long the file of a shared library has to be. To load a shorter one ends the process with SIGBUS."""
    if len(elf) < 64:  # the header of a 64-bit library
        return 64
    (table,) = struct.unpack_from("<Q", elf, 32)
    entry_size, count = struct.unpack_from("<HH", elf, 54)
    end: int = table + entry_size * count
    if end > len(elf):
        return end
    for entry in range(table, end, entry_size):
        _, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", elf, entry)
        end = max(end, offset + size)
    return end
