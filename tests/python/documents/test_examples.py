"""The programs of examples/ run as their first lines say, in small, and end with one line where something is wrong."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import aten_recompute
from benchmarks.networks.gpt import GPT

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
BUILT = ROOT / "build" / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [str(BUILT / program / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


SMALL_GPT = ["--steps", "2", "--blocks", "2", "--width", "16", "--length", "16", "--batch", "4"]


@pytest.mark.parametrize("budget", ["0.6", "4MiB", "none"])
def test_train_gpt(budget: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "gpt.pt"
    assert example("train_gpt").main([*SMALL_GPT, "--budget", budget, "--save", str(saved)]) == 0
    assert "peak of a step: predicted" in capsys.readouterr().out
    loaded = torch.jit.load(str(saved))
    assert not torch.ops.aten_recompute.holds_lowered(loaded._c)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "1KiB"], "the smallest that can be reached is"),
        (["--text", "none.txt"], "none.txt"),
        (["--text", __file__, "--length", "1000000"], "and one row takes 1000001"),
    ],
)
def test_train_gpt_says_in_one_line_what_is_wrong(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "gpt.pt"
    assert example("train_gpt").main([*SMALL_GPT, "--save", str(saved), *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("train_gpt: ")
    assert message in line
    assert not saved.exists()


def test_train_resnet_has_eagers_bits_within_the_budget(one_thread: None, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    small = ["--images", "128", "--epochs", "1", "--batch", "32", "--width", "8", "--budget", "0.6"]
    assert example("train_resnet").main(small) == 0
    assert "equal to the bit" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_huggingface_traced(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--layers", "2", "--width", "32", "--length", "32", "--batch", "2", "--steps", "3"]
    assert example("huggingface_traced").main(["--model", model, "--budget", "0.8", *small]) == 0
    assert "of that without recomputation" in capsys.readouterr().out


def test_train_ddp_has_equal_losses_and_plans_on_each_rank() -> None:
    small = ["--budget", "0.7", "--steps", "2", "--blocks", "2", "--width", "64"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLES / "train_ddp.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}
    for name in ("RECOMPUTE_ARENA_MIN_BYTES", "RECOMPUTE_ARENA_POISON"):
        environment.pop(name, None)
    done = subprocess.run([*command, *small], capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| adamw")]
    assert [row.split("|")[5].strip() for row in rows] == ["equal", "equal"]


def test_cpp_train_goes_on_with_a_file_of_python(tmp_path: Path) -> None:
    model = aten_recompute.lower(torch.jit.script(GPT(2, 16, 2, 16)), "budget", memory_budget=0.6)
    model.save(str(tmp_path / "gpt.pt"))
    torch.save(torch.arange(500).remainder(4).to(torch.uint8), tmp_path / "tokens.pt")  # easy to learn
    done = run(
        "cpp_train", str(tmp_path / "gpt.pt"), str(tmp_path / "tokens.pt"), "--steps", "20", "--batch", "4",
        "--length", "16",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    path = tmp_path / "network.pt"
    layers: list[Any] = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(6)]
    torch.jit.script(nn.Sequential(*layers)).save(str(path))
    return path


def test_cpp_lower_trains_and_writes_plain_torchscript(network_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "trained.pt"
    done = run("cpp_lower", str(network_file), "--input", "256,32", "--steps", "3", "--output", str(output))
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    trained, before = torch.jit.load(str(output)), torch.jit.load(str(network_file))
    assert not torch.ops.aten_recompute.holds_lowered(trained._c)
    assert not torch.equal(next(trained.parameters()), next(before.parameters()))


def test_cpp_lower_takes_the_smallest_budget_where_none_fits(network_file: Path) -> None:
    done = run("cpp_lower", str(network_file), "--input", "256,32", "--steps", "2", "--budget", "1KiB")
    assert done.returncode == 0, done.stderr
    first, *steps = done.stdout.splitlines()
    assert "the peak cannot be kept under 1.0 KiB" in first
    assert [line.split()[:2] for line in steps] == [["step", "0"], ["step", "1"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.pt", "--input", "2,2"], "cpp_lower: cannot open none.pt"),
        ([str(EXAMPLES / "README.md"), "--input", "2,2"], "is not a module that can be loaded"),
    ],
)
def test_cpp_lower_says_in_one_line_what_is_wrong(arguments: list[str], message: str) -> None:
    done = run("cpp_lower", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert message in line


def test_cpp_lower_names_wrong_sizes(network_file: Path) -> None:
    done = run("cpp_lower", str(network_file), "--input", "4,31")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("cpp_lower: ")


def test_the_readme_of_the_folder_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.iterdir() if path.suffix == ".py" or path.name.startswith("cpp_")]
    assert len(names) >= 9
    assert [name for name in names if f"({name})" not in text] == []
