"""``--input bundled`` takes the examples that a module holds."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils import bundled_inputs

from support.command_runs import Command


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(4)])

    def forward(self, x: Tensor, scale: float) -> Tensor:
        return (self.layers(x) * scale).sum()

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return self.layers(x).sum()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bundled") / "model.pt"
    scripted = torch.jit.script(Net())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundled = bundled_inputs.bundle_inputs(
            scripted,
            {
                scripted.forward: [(bundled_inputs.bundle_randn(16, 32), 0.5), (torch.zeros(64, 32), 0.5)],
                scripted.encode: [(torch.zeros(8, 32),)],
            },
        )
    bundled.save(str(path))
    return str(path)


@pytest.mark.parametrize(
    ("method", "text", "rows"),
    [("forward", "bundled", 16), ("forward", "bundled:1", 64), ("encode", "bundled:0", 8)],
)
def test_an_example_is_what_its_sizes_are(command: Command, model: str, method: str, text: str, rows: int) -> None:
    by_sizes = ["--input", f"float32[{rows},32]", *(["--input", "0.5"] if method == "forward" else [])]
    wanted = command("estimate", model, "--method", method, *by_sizes, "--json")
    result = command("estimate", model, "--method", method, "--input", text, "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json | {"seconds": 0.0} == wanted.json | {"seconds": 0.0}
    assert result.json["unplanned_peak_bytes"] > rows * 32 * 4


def test_an_example_is_run(command: Command, model: str, tmp_path: Path) -> None:
    result = command("lower", model, "small.pt", "--input", "bundled:1", "--budget", "1.0")
    assert (result.status, result.error) == (0, "")
    result = command("bench", "small.pt", "--input", "bundled:1", "--runs", "1")
    assert result.status == 0, result.error
    assert "lowered" in result.out


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bundled:2", "the module holds 2 examples for forward, counted from 0"),
        ("bundled:x", "the number of an example follows"),
        ("bundles", "nor bundled"),
    ],
)
def test_an_example_that_is_not_there_is_one_line(command: Command, model: str, text: str, part: str) -> None:
    command("estimate", model, "--input", text).fails(2, part)


class Odd(nn.Module):
    """Its methods have the names of those that give examples."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum()

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return x.sum()

    @torch.jit.export
    def get_all_bundled_inputs(self) -> list[Tensor]:
        return [torch.zeros(2)]

    @torch.jit.export
    def get_all_bundled_inputs_for_encode(self) -> list[tuple[Tensor]]:
        return [(torch.zeros(2).view(3),)]


@pytest.mark.parametrize(("method", "part"), [("forward", "returns no list of tuples"), ("encode", "raises: ")])
def test_a_method_that_gives_no_examples_is_one_line(command: Command, tmp_path: Path, method: str, part: str) -> None:
    torch.jit.script(Odd()).save(str(tmp_path / "odd.pt"))
    command("estimate", "odd.pt", "--method", method, "--input", "bundled").fails(2, part)


def test_a_module_without_examples_is_one_line(command: Command, tmp_path: Path) -> None:
    torch.jit.script(Net()).save(str(tmp_path / "plain.pt"))
    command("estimate", "plain.pt", "--input", "bundled").fails(2, "the module holds no examples for forward")
