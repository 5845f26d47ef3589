"""What holds for all subcommands of ``aten-recompute``: files that cannot be read, help, and colors."""

import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.command_runs import INPUT, SUBCOMMANDS, Command


def write_bad_file(name: str, folder: Path, model: str) -> str:
    """Writes the file of this name, and returns what the error says about it."""
    path = folder / name
    if name == "folder.pt":
        path.mkdir()
        return "this is a folder"
    if name == "text.pt":
        path.write_text("no module")
    elif name == "truncated.pt":
        path.write_bytes(Path(model).read_bytes()[:-1000])
    elif name == "tensor.pt":
        torch.save(torch.zeros(2), path)
    elif name == "empty.pt":
        path.write_bytes(b"")
    else:
        return "cannot be opened: " + ("File name too long" if len(name) > 255 else "No such file or directory")
    return "not a TorchScript module that can be loaded"


@pytest.mark.parametrize(
    "name", ["missing.pt", "folder.pt", "text.pt", "truncated.pt", "tensor.pt", "empty.pt", "x" * 300]
)
def test_a_file_that_is_no_module_ends_with_status_3(command: Command, model: str, tmp_path: Path, name: str) -> None:
    part = write_bad_file(name, tmp_path, model)
    command("estimate", name, "--input", INPUT).fails(3, f"{name}: {part}")


def test_a_file_of_inputs_that_is_none_ends_with_status_3(command: Command, model: str, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_text("no tensor")
    command("estimate", model, "--input", "x.pt").fails(3, "x.pt: not tensors that torch.save wrote")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "A subcommand is required"),
        (["paint"], "paint: no such subcommand; there are"),
        (["estim", "model.pt"], 'estim: no such subcommand; did you mean "estimate"?'),
        (["--paint"], "--paint: no such option; a subcommand comes first"),
    ],
)
def test_a_subcommand_is_needed(command: Command, arguments: list[str], part: str) -> None:
    command(*arguments).fails(2, part, ", ".join(SUBCOMMANDS))


def test_a_state_dict_is_no_input(command: Command, model: str, tmp_path: Path) -> None:
    torch.save(torch.jit.load(model).state_dict(), tmp_path / "x.pt")
    command("estimate", model, "--input", "x.pt").fails(3, "x.pt: holds neither a tensor nor a list of them")


def test_line_ends_in_a_name_are_spaces(command: Command) -> None:
    command("estimate", "no\nsuch.pt", "--input", INPUT).fails(3, "no such.pt: cannot be opened")


class Raising(nn.Module):
    """Has a parameter, and raises an error of two lines."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.linear(x))
        if x.size(0) > 0:
            raise ValueError("two\nlines <b>")
        return y


@pytest.mark.parametrize(
    "arguments", [["plan", "--budget", "0.5"], ["profile"], ["profile", "--meta"], ["estimate"], ["bench", "-b", "0.5"]]
)
def test_the_cause_of_an_error_of_the_method_is_told(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    torch.jit.script(Raising()).save(str(tmp_path / "raising.pt"))
    result = command(arguments[0], "raising.pt", "--input", "float32[2,4]", *arguments[1:])
    result.fails(6, "ValueError: two lines <b>")


class Nested(nn.Module):
    """Takes its tensors in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: list[Tensor], y: dict[str, Tensor], z: list[tuple[Tensor, list[Tensor]]] | None) -> Tensor:
        sum = torch.tanh(self.linear(x[0])) + y["a"]
        if z is not None:
            sum = sum + z[0][1][0]
        return sum


@pytest.mark.parametrize("arguments", [["estimate"], ["plan", "--budget", "1.0"]])
def test_a_file_gives_lists_and_dicts(command: Command, tmp_path: Path, arguments: list[str]) -> None:
    torch.jit.script(Nested()).save(str(tmp_path / "nested.pt"))
    x = torch.randn(2, 4)
    for z in ([(x, [x])], None):
        torch.save([[x], {"a": x}, z], tmp_path / "inputs.pt")
        result = command(arguments[0], "nested.pt", "--input", "inputs.pt", *arguments[1:])
        assert (result.status, result.error) == (0, "")


@pytest.mark.parametrize("wrong", [[3], {"a": 3}, [[torch.zeros(1)]]])
def test_a_file_of_other_elements_is_refused(command: Command, tmp_path: Path, wrong: object) -> None:
    torch.jit.script(Nested()).save(str(tmp_path / "nested.pt"))
    torch.save([wrong, {"a": torch.zeros(2, 4)}, None], tmp_path / "inputs.pt")
    command("estimate", "nested.pt", "--input", "inputs.pt").fails(2, "type 'List[Tensor]' for argument 'x'")


def test_help_names_the_exit_statuses(command: Command) -> None:
    result = command("--help")
    assert (result.status, result.error) == (0, "")
    assert re.findall(r"^  (\d)  ", result.out, re.MULTILINE) == list("0123456")


def test_help_of_a_subcommand_fits_100_columns(command: Command) -> None:
    result = command("--help-all")
    assert (result.status, result.error) == (0, "")
    assert max(map(len, result.out.splitlines())) <= 100


def test_the_version_is_that_of_the_library(command: Command) -> None:
    assert command("--version").out.strip() == aten_recompute.__version__


def test_output_that_cannot_be_written_ends_with_status_4(binary: Path, model: str) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [binary, "estimate", model, "--input", INPUT], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 4
    assert result.stderr == "aten-recompute: the result cannot be written to stdout\n"


@pytest.mark.parametrize(("no_color", "bold"), [("", True), ("1", False)])
def test_a_terminal_shows_a_bold_header_unless_no_color_is_set(
    binary: Path, model: str, no_color: str, bold: bool
) -> None:
    line = f"NO_COLOR={no_color} {binary} estimate {model} --input '{INPUT}'"
    result = subprocess.run(["script", "-qec", line, "/dev/null"], capture_output=True, text=True, check=True)
    assert ("\x1b[1m" in result.stdout) == bold


class Talkative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        print("hello")
        return self.linear(x).sum()


def test_what_a_method_prints_stays_out_of_the_result(command: Command, tmp_path: Path) -> None:
    torch.jit.script(Talkative()).save(str(tmp_path / "talkative.pt"))
    result = command("estimate", "talkative.pt", "--input", "float32[2,4]", "--json")
    assert result.status == 0
    assert result.json["regions"] == 1
    assert result.error == "hello\n"
