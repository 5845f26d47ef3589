"""Shells complete the arguments of ``aten-recompute``."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command_runs import SUBCOMMANDS, Command
from support.terminals import PROMPT, Shell

Complete = Callable[[str], list[str]]

# In place of the program: prints its arguments, one in a pair of brackets each.
PRINTER = "aten-recompute() { printf '<%s>' \"$@\"; printf 'END\\n'; }\n"


def typed(shell: Shell, line: str, key: str) -> list[str]:
    """Types a line and a key that inserts all completions, and returns the words of the line then."""
    shell.type(f"{line}{key}")
    # The shell prints the marker after it has read the key, so that Return is no part of the completion.
    shell.type("\n")
    shown = shell.read_until("END\r\n")
    shell.read_until(PROMPT)
    return [word.partition(">")[0] for word in shown.split("<")[1:]]


@pytest.fixture
def bash(binary: Path, tmp_path: Path) -> Iterator[Complete]:
    """Returns the words that bash makes of a line, of which it completes the last one in all ways."""
    (tmp_path / "model.pt").touch()
    (tmp_path / "my model.pt").touch()
    shell = Shell(["bash", "--norc", "--noprofile", "-i"], tmp_path, {"PS1": PROMPT})
    shell.type(f'source <("{binary}" --completion bash)\n{PRINTER}bind "set bell-style none"\necho RE""ADY\n')
    shell.read_until("READY\r\n")
    shell.read_until(PROMPT)
    yield lambda line: typed(shell, line, "\x1b*")  # readline's insert-completions
    shell.close()


@pytest.fixture
def zsh(binary: Path, tmp_path: Path) -> Iterator[Complete]:
    """Returns the words that zsh makes of a line, of which it completes the last one in all ways."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    (tmp_path / "model.pt").touch()
    (tmp_path / "my model.pt").touch()
    functions = tmp_path / ".functions"
    functions.mkdir()
    script = subprocess.run([binary, "--completion", "zsh"], capture_output=True, text=True, check=True).stdout
    (functions / "_aten-recompute").write_text(script)
    shell = Shell(["zsh", "-f", "-i"], tmp_path, {"PS1": PROMPT})
    shell.type(
        f"unsetopt zle_bracketed_paste prompt_sp; fpath=({functions} $fpath); autoload -Uz compinit; compinit -D -u\n"
        f"{PRINTER}"
        "zstyle ':completion:*' completer _all_matches _complete; zstyle ':completion:*' insert true\n"
        "zle -C all complete-word _generic; bindkey '^Xa' all; echo RE\"\"ADY\n"
    )
    shell.read_until("READY\r\n")
    shell.read_until(PROMPT)
    yield lambda line: typed(shell, line, "\x18a")
    shell.close()


# What is typed, and the words of the line when the last one has been completed in all ways.
CASES = [
    ("aten-recompute ", SUBCOMMANDS),
    ("aten-recompute es", ["estimate"]),
    ("aten-recompute --comp", ["--completion"]),
    ("aten-recompute --completion ", ["--completion", "bash", "zsh"]),
    ("aten-recompute plan --sw", ["plan", "--sweep"]),
    ("aten-recompute plan m.pt --s", ["plan", "m.pt", "--sweep", "--svg", "--steps", "--set"]),
    ("aten-recompute estimate --device ", ["estimate", "--device", "cpu", "cuda"]),
    ("aten-recompute draw m.pt out.svg --what f", ["draw", "m.pt", "out.svg", "--what", "forward"]),
    ("aten-recompute lower m.pt out.pt -s min", ["lower", "m.pt", "out.pt", "-s", "min_cut"]),
    ("aten-recompute inspect mod", ["inspect", "model.pt"]),
    ("aten-recompute inspect my", ["inspect", "my model.pt"]),
    ("aten-recompute plan --input mod", ["plan", "--input", "model.pt"]),
    ("aten-recompute plan --budget mod", ["plan", "--budget", "mod"]),
    ("aten-recompute diff model.pt mod", ["diff", "model.pt", "model.pt"]),
]


def is_same(found: list[str], expected: list[str]) -> bool:
    """Compares words; those that the shell adds may come in any order."""
    return sorted(found) == sorted(expected)


@pytest.mark.parametrize(("line", "words"), CASES)
def test_bash_completes(bash: Complete, line: str, words: list[str]) -> None:
    assert is_same(bash(line), words)


def test_bash_completes_a_value_behind_an_equals_sign(bash: Complete) -> None:
    assert bash("aten-recompute estimate --device=cu") == ["estimate", "--device=cuda"]


@pytest.mark.parametrize(("line", "words"), CASES)
def test_zsh_completes(zsh: Complete, line: str, words: list[str]) -> None:
    assert is_same(zsh(line), words)


def test_zsh_reads_the_script_as_a_file_too(binary: Path, tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    line = (
        f'autoload -Uz compinit; compinit -D -u; source <("{binary}" --completion zsh); print $_comps[aten-recompute]'
    )
    result = subprocess.run(["zsh", "-fc", line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("_aten-recompute\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_scripts_have_no_syntax_errors_and_name_every_option(command: Command, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = command("--completion", shell).out
    checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    for subcommand in SUBCOMMANDS:
        options = re.findall(r"^  (?:-\w,)?(--[\w-]+)", command(subcommand, "--help").out, re.MULTILINE)
        assert "--help" in options
        assert all(option in script for option in options)


def test_other_shells_are_refused(command: Command) -> None:
    command("--completion", "fish").fails(2, "--completion")
    command("--completion").fails(2, "--completion")
