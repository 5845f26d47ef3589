"""Finds and loads the shared library."""

import os
from pathlib import Path

import torch

_NAME = "libaten_recompute.so"


def library_path() -> Path:
    """The library that this package uses.

    Looked for in the package's own ``lib`` folder, then where the environment variable
    ``ATEN_RECOMPUTE_LIBRARY`` says, then in ``build`` of the source tree.

    Raises:
        FileNotFoundError: it is in none of these places.
    """
    package = Path(__file__).resolve().parent
    candidates = [package / "lib" / _NAME]
    named = os.environ.get("ATEN_RECOMPUTE_LIBRARY")
    if named:
        candidates.append(Path(named))
    candidates.append(package.parent.parent / "build" / _NAME)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    places = ", ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(f"{_NAME} not found (looked at {places}): run `make build`, or set ATEN_RECOMPUTE_LIBRARY")


def load_library() -> None:
    """Loads the library into this process; once is enough, again does no harm."""
    torch.ops.load_library(str(library_path()))
