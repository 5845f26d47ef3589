"""The script that starts the command of an installed package finds the program, and LibTorch for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import aten_recompute

# In place of the program: prints what it was started with.
PROGRAM = '#!/bin/sh\necho "$0 $LD_LIBRARY_PATH"\nfor each; do echo "<$each>"; done\nexit 5\n'


def make_package(folder: Path, versions: list[str]) -> None:
    """Makes a package with a command for each of these versions of torch."""
    package = folder / "aten_recompute"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for version in versions:
        program = package / "lib" / f"torch-{version}" / "aten-recompute"
        program.parent.mkdir(parents=True)
        program.write_text(PROGRAM)
        program.chmod(0o755)


def make_torch(folder: Path, version: str) -> None:
    """Makes a torch package of this version, which cannot be imported."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")


def start(
    *folders: Path, arguments: tuple[str, ...] = (), library_path: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Runs the script where Python finds packages in these folders only."""
    source = Path(aten_recompute.__file__).parents[1]
    code = (
        f"import sys; sys.path += {[*map(str, folders), str(source)]}; "
        "import aten_recompute_command; aten_recompute_command.main()"
    )
    kept = {"PATH": os.environ["PATH"]} | ({"LD_LIBRARY_PATH": library_path} if library_path else {})
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments], env=kept, capture_output=True, text=True, check=False
    )


def test_the_program_for_the_version_of_torch_runs(tmp_path: Path) -> None:
    make_package(tmp_path, ["2.13", "2.15"])
    make_torch(tmp_path, "2.15.1+cpu")
    result = start(tmp_path, arguments=("plan", "a b", "--x=*"))
    assert (result.returncode, result.stderr) == (5, "")
    program = tmp_path / "aten_recompute" / "lib" / "torch-2.15" / "aten-recompute"
    # LibTorch lies where the program looks for it.
    assert result.stdout.splitlines() == [f"{program} ", "<plan>", "<a b>", "<--x=*>"]


@pytest.mark.parametrize("before", ["", "/somewhere"])
def test_libtorch_in_another_folder_is_named(tmp_path: Path, before: str) -> None:
    make_package(tmp_path / "user", ["2.13"])
    make_torch(tmp_path / "system", "2.13.0")
    result = start(tmp_path / "user", tmp_path / "system", library_path=before)
    path = result.stdout.splitlines()[0].split(" ")[1]
    assert path == ":".join([str(tmp_path / "system" / "torch" / "lib"), *([before] if before else [])])


def test_another_version_of_torch_is_one_line(tmp_path: Path) -> None:
    make_package(tmp_path, ["2.11", "2.13"])
    make_torch(tmp_path, "2.14.0")
    result = start(tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    package = tmp_path / "aten_recompute"
    assert result.stderr == (
        f"aten-recompute: this is torch 2.14, and {package} has the command for torch 2.11, 2.13 only\n"
    )


def test_a_missing_torch_is_one_line(tmp_path: Path) -> None:
    make_package(tmp_path, ["2.13"])
    result = start(tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == f"aten-recompute: {sys.executable} has no package torch: install it there\n"


def test_a_package_without_the_command_is_one_line(tmp_path: Path) -> None:
    make_package(tmp_path, [])
    make_torch(tmp_path, "2.13.0")
    result = start(tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == f"aten-recompute: {tmp_path / 'aten_recompute'} was installed without the command\n"


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    make_package(tmp_path, ["2.13"])
    make_torch(tmp_path, "2.13.0")
    program = tmp_path / "aten_recompute" / "lib" / "torch-2.13" / "aten-recompute"
    program.write_bytes(b"\x7fELF")
    result = start(tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == f"aten-recompute: {program} cannot be started: Exec format error\n"


def test_the_source_tree_has_the_program_in_build(binary: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "aten_recompute_command", "--version"],
        env=os.environ | {"PYTHONPATH": str(Path(aten_recompute.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.stdout.strip(), result.stderr) == (aten_recompute.__version__, "")
