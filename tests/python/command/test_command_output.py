"""What ``aten-recompute`` replaces when it writes a file, and what it leaves alone."""

import os
import stat
from pathlib import Path

import pytest

from support.command_runs import INPUT, Command

WRITERS = {
    "lower": (["lower", "in.pt"], ["--budget", "0.5"]),
    "trace": (["draw", "in.pt"], ["--input", INPUT, "--what", "perfetto"]),
    "picture": (["draw", "in.pt"], ["--input", INPUT]),
    "svg": (["plan", "in.pt", "--sweep", "--svg"], ["--input", INPUT]),
}


@pytest.fixture
def content(model: str, tmp_path: Path) -> bytes:
    """Copies the module to in.pt, and returns its bytes."""
    content = Path(model).read_bytes()
    (tmp_path / "in.pt").write_bytes(content)
    return content


@pytest.mark.parametrize("writer", ["trace", "picture", "svg"])
@pytest.mark.parametrize("name", ["in.pt", "./in.pt", "hard.dot", "link.dot"])
def test_the_module_is_not_replaced(command: Command, content: bytes, tmp_path: Path, writer: str, name: str) -> None:
    (tmp_path / "hard.dot").hardlink_to(tmp_path / "in.pt")
    (tmp_path / "link.dot").symlink_to("in.pt")
    before = sorted(os.listdir(tmp_path))
    command(*WRITERS[writer][0], name, *WRITERS[writer][1]).fails(2, f"{name}: would replace what is read")
    assert (tmp_path / name).read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == before


def test_a_file_of_inputs_is_not_replaced(command: Command, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_text("before")
    command("lower", "in.pt", "x.pt", "--budget", "0.5", "--input", "x.pt").fails(2, "x.pt: would replace")
    assert (tmp_path / "x.pt").read_text() == "before"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pipe_is_not_replaced(command: Command, content: bytes, tmp_path: Path, writer: str) -> None:
    os.mkfifo(tmp_path / "pipe.dot")
    result = command(*WRITERS[writer][0], "pipe.dot", *WRITERS[writer][1])
    result.fails(4, "pipe.dot: cannot be written: it is a device or a pipe, not a file")
    assert stat.S_ISFIFO((tmp_path / "pipe.dot").stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["in.pt", "pipe.dot"]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays(command: Command, content: bytes, tmp_path: Path, writer: str, is_there: bool) -> None:
    target = tmp_path / "folder" / "target.dot"
    target.parent.mkdir()
    (tmp_path / "link.dot").symlink_to("folder/target.dot")
    if is_there:
        target.write_text("before")
        target.chmod(0o640)
    result = command(*WRITERS[writer][0], "link.dot", *WRITERS[writer][1])
    assert (result.status, result.error) == (0, "")
    assert (tmp_path / "link.dot").is_symlink()
    assert target.stat().st_size > 100
    if is_there:
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(target.parent) == ["target.dot"]
