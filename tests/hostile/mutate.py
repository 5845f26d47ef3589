"""Changes bytes and JSON at random, as somebody would who looks for an input that does harm."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

NUMBERS: list[Any] = [0, 1, -1, 2, 63, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63, 2**64, 1e308, -1e308, 0.5]
ODD: list[Any] = [
    *NUMBERS,
    "",
    "0",
    "nan",
    "inf",
    "-1",
    "1e308TiB",
    "40%",
    "/dev/zero",
    "/",
    "\x00",
    "\ud800",
    "%",
    "(a*)*b",
    "((((",
    "x" * 5000,
    "[" * 5000,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    ["relu"] * 2000,
]
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"\x00",
    b"\xff",
    b"0",
    b"9" * 20,
    b"PK\x03\x04",
    b"\x80\x02",
    b".",
    b"__",
]


def change_bytes(data: bytes, draw: random.Random) -> bytes:
    """Truncates, flips bits, or moves, repeats and removes parts, one to four times."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randint(0, len(changed))
        kind = draw.randrange(7)
        if kind == 0:
            del changed[place:]
        elif kind in (1, 2) and changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        elif kind == 3:
            changed[place : place + draw.randint(1, 32)] = b""
        elif kind == 4:
            changed[place:place] = draw.choice(TOKENS) * draw.choice([1, 1, 1, 4, 3000])
        elif kind == 5:
            start = draw.randint(0, len(changed))
            changed[place:place] = changed[start : start + draw.randint(1, 256)]
        elif len(changed) >= 4:
            # A count, somewhere.
            at = draw.randrange(len(changed) - 3)
            changed[at : at + 4] = draw.choice([0, 1, 255, 2**16, 2**31 - 1, 2**32 - 1]).to_bytes(4, "little")
    return bytes(changed)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns all (container, key) pairs in a JSON value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], dict | list):
                waiting.append(container[key])
    return found


def change_json(value: Any, draw: random.Random, odd: Callable[[random.Random], Any] | None = None) -> Any:
    """Puts odd values in the place of others, and removes, copies and exchanges parts, one to four times.

    ``odd`` draws values that suit the place better than those of this module.
    """
    changed = json.loads(json.dumps(value))
    for _ in range(draw.randint(1, 4)):
        places = _places(changed)
        if not places:
            return changed
        container, key = draw.choice(places)
        kind = draw.randrange(5)
        if kind in (0, 1):
            # A copy: what is changed later must not be a part of itself.
            container[key] = odd(draw) if odd is not None and draw.random() < 0.7 else copy.deepcopy(draw.choice(ODD))
        elif kind == 2:
            del container[key]
        elif kind == 3:
            other, of_other = draw.choice(places)
            try:
                container[key] = json.loads(json.dumps(other[of_other]))
            except (KeyError, IndexError):
                continue
        elif isinstance(container, list):
            container.insert(key, container[key])
        else:
            container[draw.choice([*container, "x", ""])] = container[key]
    return changed
