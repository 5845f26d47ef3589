"""Python from a string, whose source TorchScript finds."""

import linecache
from typing import Any


def run_source(source: str, file: str, names: dict[str, Any]) -> None:
    """Runs ``source`` with ``names`` as its globals; ``linecache`` has it under the name ``file`` from then on."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
