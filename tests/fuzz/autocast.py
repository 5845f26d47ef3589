"""Blocks of autocast: those that a caller has around its calls, and those that programs have themselves."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

# What the caller has around a call.
AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "": nullcontext,
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "without cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "disabled": lambda: torch.autocast("cpu", enabled=False),
}
OFTEN = ["", "bfloat16", "bfloat16", "bfloat16", "without cache", "float16", "disabled"]

# The first lines of blocks in a program.
BLOCKS = [
    'with torch.autocast("cpu", dtype=torch.bfloat16):', 'with torch.autocast("cpu", dtype=torch.bfloat16):',
    'with torch.autocast("cpu", enabled=False):', 'with torch.autocast("cpu"):',
    'with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):',
    'with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled={condition}):',
]  # fmt: skip

_BLOCK = re.compile(r"with torch\.autocast\(.*\):$", re.MULTILINE)


def has_blocks(source: str) -> bool:
    return _BLOCK.search(source) is not None


def without_blocks(source: str) -> str:
    """Returns the program as one that stock TorchScript can be asked about: it ignores or misreads blocks."""
    return _BLOCK.sub("if True:", source)
