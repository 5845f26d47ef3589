"""Files of reports are complete or not there, and bad paths are one line."""

import os
from pathlib import Path
from typing import Any

import pytest

import aten_recompute
from instruments.test_report import trained_workload

WRITERS = ("to_html", "to_perfetto", "to_memory_viz")


@pytest.fixture(scope="module")
def report() -> Any:
    return aten_recompute.report(trained_workload())


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_is_not_there_is_one_line(report: Any, writer: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / "file"
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {path}: No such file or directory$"):
        getattr(report, writer)(path)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_in_place_of_a_file_is_one_line(report: Any, writer: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {tmp_path}: it is a folder$"):
        getattr(report, writer)(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("writer", WRITERS)
def test_where_writing_fails_the_earlier_file_stays(
    report: Any, writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {path}: No space left on device$"):
        getattr(report, writer)(path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_is_replaced_and_others_may_read_it(report: Any, writer: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    mask = os.umask(0o022)
    try:
        getattr(report, writer)(path)
    finally:
        os.umask(mask)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() != b"before"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("writer", WRITERS)
def test_a_pipe_is_not_replaced(report: Any, writer: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match=rf"^{writer}: cannot write {path}: it is a device or a pipe, not a file$"):
        getattr(report, writer)(path)
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_stays_and_so_do_permissions(report: Any, writer: str, tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("before")
    path.chmod(0o600)
    link.symlink_to("file")
    getattr(report, writer)(link)
    assert link.is_symlink()
    assert path.read_bytes() != b"before"
    assert path.stat().st_mode & 0o777 == 0o600
