"""Saved modules: as LibTorch and the command read them, with bytes, counts, records and options changed."""

import functools
import io
import random
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

import aten_recompute

from .commands import run_command
from .mutate import ODD, change_bytes
from .nets import REFUSALS, net, one_line

SEEDS = ("segments", "regions")
SPEC = b'{"strategy"'
MOST_BOMB = 1 << 30  # bytes that a bomb becomes


@functools.cache
def _saved(name: str) -> bytes:
    lowered = aten_recompute.lower(torch.jit.script(net(name).scene.eager()), "segments")
    buffer = io.BytesIO()
    torch.jit.save(lowered, buffer)
    return buffer.getvalue()


def _records(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(records: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def with_spec(data: bytes, spec: bytes) -> bytes:
    """Returns the saved module with other options in the place of its own."""
    records = _records(data)
    name = next(name for name in records if name.endswith("/data.pkl"))
    pickled = records[name]
    at = pickled.index(SPEC)
    opcode, length = pickled[at - 5 : at - 4], struct.unpack("<I", pickled[at - 4 : at])[0]
    assert opcode == b"X"
    records[name] = pickled[: at - 4] + struct.pack("<I", len(spec)) + spec + pickled[at + length :]
    return _archive(records)


@functools.cache
def _bomb(record: str) -> bytes:
    """Returns a saved module in which a record of zeros becomes `MOST_BOMB` bytes long when it is read."""
    records = _records(_saved(SEEDS[0]))
    name = next(name for name in records if name.endswith(record))
    records[name] = b"0" * MOST_BOMB
    return _archive(records, zipfile.ZIP_DEFLATED)


def draw(draw: random.Random) -> Any:
    """Returns a network and the bytes of a file; no network if its tensors may have changed."""
    name = draw.choice(SEEDS)
    data = _saved(name)
    kind = draw.random()
    if kind < 0.4:
        return None, change_bytes(data, draw)
    if kind < 0.7:
        records = _records(data)
        names = [each for each in records if not each.endswith("/data.pkl")]
        changed = draw.choice([name for name in names if records[name]])
        records[changed] = change_bytes(records[changed], draw)
        return None, _archive(records)
    if kind < 0.98:
        odd = draw.choice(ODD)
        text = odd if isinstance(odd, str) else repr(odd)
        spec = draw.choice(
            [change_bytes(SPEC + b': "segments", "count": 2}', draw), text.encode("utf-8", "surrogatepass")]
        )
        return name, with_spec(data, spec)
    return None, _bomb(draw.choice(["version", "data.pkl", "constants.pkl"]))


def judge(given: Any) -> tuple[bool, str]:
    """The command says what the file is; a module that loads with other options trains, or refuses to."""
    name, data = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        path.write_bytes(data)
        accepted, problem = run_command(["inspect", str(path)], folder)
        if problem or name is None:
            return accepted, problem
        try:
            loaded = torch.jit.load(str(path))
            return True, net(name).step(loaded)
        except REFUSALS as error:
            return False, one_line(error)
