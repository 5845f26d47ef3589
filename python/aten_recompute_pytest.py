"""A limit for the memory of a test of training code: the pytest plugin of aten_recompute.

    @pytest.mark.max_peak("600MiB")
    def test_a_step_fits():
        model(batch).sum().backward()

The test fails if the tensors that it makes on the CPU take more than that at once, and names the ten largest of them.
This is a module of its own so that pytest runs that never use the mark do not import torch.
"""

import gc
import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

MARK = "max_peak"
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_ACCEPTED = 'accepted are bytes, such as 4096 or "600MiB" (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)'


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f'{MARK}(limit): the test fails if its tensors on the CPU take more than this at once, such as "600MiB"',
    )


def limit_of(mark: pytest.Mark) -> tuple[int, str]:
    """Returns the limit in bytes, and in one line what is wrong with the mark; "" where nothing is."""
    arguments = [*mark.args, *mark.kwargs.values()]
    if len(arguments) != 1 or any(name != "limit" for name in mark.kwargs):
        return 0, f"{MARK} takes one limit; {_ACCEPTED}"
    limit = arguments[0]
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit, ""
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", limit.lower())
        if found is not None and found[2] in _UNITS and float(found[1]) * _UNITS[found[2]] >= 1:
            return int(float(found[1]) * _UNITS[found[2]]), ""
    return 0, f"{MARK}: the limit is {limit!r}; {_ACCEPTED}"


def _size(count: int) -> str:
    from aten_recompute._texts import byte_text

    return byte_text(count)


def _is_of_a_library(file: str) -> bool:
    folders = Path(file).parts
    return "site-packages" in folders or "dist-packages" in folders or file.startswith("<")


def _line_of(frames: list[tuple[str, int, str]]) -> str:
    """Returns the innermost line that is not of an installed package."""
    own = [frame for frame in frames if not _is_of_a_library(frame[0]) and "aten_recompute" not in Path(frame[0]).parts]
    for file, line, function in own or frames:
        name = "/".join(Path(file).parts[-2:])
        return f"{name}:{line} in {function}"
    return ""


def _rows(blocks: list[dict[str, Any]]) -> str:
    from aten_recompute._texts import table_text

    rows = [
        [
            block["operator"] or "(no operator)",
            block["range"].removeprefix("aten_recompute: ").removesuffix(" of "),
            _line_of(block["frames"]),
            _size(block["bytes"]),
        ]
        for block in blocks
    ]
    table = table_text(["operator", "part of", "line", "bytes"], rows, left=3)
    return "\n".join(f"  {line}" for line in table.splitlines())


def message_of(limit: int, watched: dict[str, Any]) -> str:
    """Returns what a test fails with."""
    peak = watched["peak_bytes"]
    sizes = [_size(peak), _size(limit)]
    if sizes[0] == sizes[1]:
        sizes = [f"{sizes[0]} ({peak:,} B)", f"{sizes[1]} ({limit:,} B)"]
    text = f"{MARK}: the peak of the tensors on the CPU is {sizes[0]}, the limit {sizes[1]}"
    if not watched["blocks"]:
        return text
    return f"{text}; the largest, when {_size(watched['at_bytes'])} were alive:\n{_rows(watched['blocks'])}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watches the call of a test that has the mark; fixtures do not count."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return (yield)
    limit, problem = limit_of(mark)
    if problem:
        pytest.fail(problem, pytrace=False)
    import torch

    import aten_recompute  # noqa: F401  (it loads the library)

    gc.collect()
    if not torch.ops.aten_recompute.start_peak_watch(limit):
        pytest.fail(f"{MARK}: memory cannot be watched: another allocator takes the place of PyTorch's", pytrace=False)
    try:
        result = yield
    finally:
        watched = json.loads(torch.ops.aten_recompute.stop_peak_watch())
    if watched["peak_bytes"] > limit:
        pytest.fail(message_of(limit, watched), pytrace=False)
    return result
