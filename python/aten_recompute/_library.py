"""Finds the shared library and loads it."""

import os
from pathlib import Path

import torch

_NAME = "libaten_recompute.so"


def library_path() -> Path:
    """Returns the path of the shared library that this package uses.

    The first of these that exists is taken: the library in the package's own ``lib`` folder, the file that the
    environment variable ``ATEN_RECOMPUTE_LIBRARY`` names, and the library in ``build`` of the source tree.

    Raises:
        FileNotFoundError: none of them exists; the message lists the paths.
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
    """Loads the library into this process. A second call has no effect."""
    torch.ops.load_library(str(library_path()))  # type: ignore[no-untyped-call]
