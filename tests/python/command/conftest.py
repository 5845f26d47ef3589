"""The command ``aten-recompute`` as it was built, and files for it."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import aten_recompute
from support.command_runs import Command, Loss, Result


@pytest.fixture(scope="session")
def binary() -> Path:
    """The program, which lies beside the library that Python has loaded."""
    path = Path(aten_recompute.library_path()).with_name("aten-recompute")
    if not path.is_file():
        pytest.skip(f"{path} is not built (ATEN_RECOMPUTE_COMMAND=OFF)")
    return path


def _runner(binary: Path, folder: Path, before: Callable[[], None] | None = None) -> Command:
    def run(*arguments: str, **environment: str) -> Result:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RECOMPUTE")}
        return Result(
            subprocess.run(
                [binary, *arguments],
                cwd=folder,
                env=kept | {"OMP_NUM_THREADS": "1"} | environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
                preexec_fn=before,
            )
        )

    return run


@pytest.fixture
def command(binary: Path, tmp_path: Path) -> Command:
    """Runs the command in an empty folder, where files are written."""
    return _runner(binary, tmp_path)


@pytest.fixture
def limited(binary: Path, tmp_path: Path) -> Command:
    """Runs the command where files have at most 10 kB, as on a disk that is almost full."""

    def limit_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    return _runner(binary, tmp_path, limit_files)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a scripted module."""
    path = tmp_path_factory.mktemp("models") / "model.pt"
    torch.jit.script(Loss()).save(str(path))
    return str(path)
