"""Files of reports, plans and profiles are complete or not there, and bad paths are one line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import aten_recompute
from benchmarks.models import make
from instruments.test_report import trained_workload

Write = Callable[[Path], Any]
WRITERS = ("to_html", "to_perfetto", "to_memory_viz", "save_plan", "Profile.to_csv")


@pytest.fixture(scope="module")
def writes() -> dict[str, Write]:
    lowered = trained_workload()
    report = aten_recompute.report(lowered)
    workload = make("mlp", size="small")
    profile = aten_recompute.profile(torch.jit.script(workload.module), workload.inputs)
    return {
        **{name: getattr(report, name) for name in ("to_html", "to_perfetto", "to_memory_viz")},
        "save_plan": lambda path: aten_recompute.save_plan(lowered, path),
        "Profile.to_csv": profile.to_csv,
    }


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_is_not_there_is_one_line(writes: dict[str, Write], writer: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / "file"
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {path}: No such file or directory$"):
        writes[writer](path)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_in_place_of_a_file_is_one_line(writes: dict[str, Write], writer: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {tmp_path}: it is a folder$"):
        writes[writer](tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("writer", WRITERS)
def test_where_writing_fails_the_earlier_file_stays(
    writes: dict[str, Write], writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {path}: No space left on device$"):
        writes[writer](path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_is_replaced_and_others_may_read_it(writes: dict[str, Write], writer: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    mask = os.umask(0o022)
    try:
        writes[writer](path)
    finally:
        os.umask(mask)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() != b"before"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pipe_is_not_replaced(writes: dict[str, Write], writer: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {path}: it is a device or a pipe, not a file$"):
        writes[writer](path)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_stays_and_so_do_permissions(writes: dict[str, Write], writer: str, tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("before")
    path.chmod(0o600)
    link.symlink_to("file")
    writes[writer](link)
    assert link.is_symlink()
    assert path.read_bytes() != b"before"
    assert path.stat().st_mode & 0o777 == 0o600


SAVES_FOR_EVER = """
import sys
from pathlib import Path

import aten_recompute
from instruments.test_report import trained_workload

lowered = trained_workload()
report = aten_recompute.report(lowered)
folder = Path(sys.argv[1])
while True:
    aten_recompute.save_plan(lowered, folder / "plan.json")
    report.to_perfetto(folder / "trace.json")
    (folder / "ready").touch()
"""


def test_a_process_that_is_ended_while_it_saves_leaves_whole_files(tmp_path: Path) -> None:
    """Whatever the moment, each file is one that was written to its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SAVES_FOR_EVER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.05)
        whole = {name: (tmp_path / name).read_bytes() for name in ("plan.json", "trace.json")}
        for _ in range(300):
            process.send_signal(signal.SIGSTOP)
            for name, content in whole.items():
                assert (tmp_path / name).read_bytes() == content
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
    finally:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
    assert process.wait() == -signal.SIGTERM
    for name, content in whole.items():
        assert (tmp_path / name).read_bytes() == content
