"""The manual page of ``aten-recompute``, and what ``cmake --install`` puts where shells and ``man`` look for it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command_runs import SUBCOMMANDS, Command


@pytest.fixture
def page(command: Command, tmp_path: Path) -> Path:
    result = command("--man")
    assert (result.status, result.error) == (0, "")
    path = tmp_path / "aten-recompute.1"
    path.write_text(result.out)
    return path


def shown(page: Path, program: str) -> str:
    """Returns the page as a terminal shows it, with its words separated by single spaces."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    commands = {
        "mandoc": ["mandoc", "-T", "ascii", str(page)],
        "groff": ["groff", "-man", "-Tascii", "-P-c", "-P-b", "-P-u", "-ww", str(page)],
    }
    result = subprocess.run(commands[program], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return re.sub(r"\s+", " ", re.sub(".\b", "", result.stdout))


@pytest.mark.parametrize("program", ["groff", "mandoc"])
def test_the_page_has_what_help_says(command: Command, page: Path, program: str) -> None:
    text = shown(page, program)
    for section in ("NAME", "SYNOPSIS", "OPTIONS", "SUBCOMMANDS", "EXIT STATUS", "ENVIRONMENT"):
        assert f" {section} " in text
    for subcommand in SUBCOMMANDS:
        lines = command(subcommand, "--help").out.splitlines()
        described = [
            re.sub(r"\s+", " ", line).strip() for line in lines if line and not line.startswith((" ", "Usage"))
        ]
        examples = [line.strip() for line in lines if line.startswith("  aten-recompute")]
        options = [word for line in lines if line.startswith("  -") for word in line.split()[0].split(",")]
        assert described
        assert examples
        for part in [*examples, *options, described[0]]:
            assert part in text


def test_mandoc_finds_nothing_wrong(page: Path) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    result = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, check=False
    )
    # The page has no date, so that it is the same whenever it is built.
    complaints = [line for line in result.stdout.splitlines() if "missing date" not in line]
    assert complaints == []


def test_what_is_installed_is_what_the_command_writes(binary: Path, command: Command, tmp_path: Path) -> None:
    build = binary.parent
    if shutil.which("cmake") is None or not (build / "CMakeCache.txt").is_file():
        pytest.skip("cmake or its build folder is missing")
    prefix = tmp_path / "prefix"
    install = ["cmake", "--install", str(build), "--prefix", str(prefix), "--component", "library"]
    subprocess.run(install, capture_output=True, check=True)
    files = {
        "share/bash-completion/completions/aten-recompute": ("--completion", "bash"),
        "share/zsh/site-functions/_aten-recompute": ("--completion", "zsh"),
        "share/man/man1/aten-recompute.1": ("--man",),
    }
    for name, arguments in files.items():
        assert (prefix / name).read_text() == command(*arguments).out
    program = prefix / "bin" / "aten-recompute"
    result = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == command("--version").out
