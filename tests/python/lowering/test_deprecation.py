"""PyTorch warns that TorchScript is deprecated, where a program calls torch.jit. This package adds no such warnings."""

import io
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor

import aten_recompute
from support.nets import Residual

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def scripted() -> torch.jit.ScriptModule:
    return torch.jit.script(Residual())


@pytest.fixture(autouse=True)
def _warnings_are_errors(scripted: torch.jit.ScriptModule) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_lowering_training_and_loading_do_not_warn(scripted: torch.jit.ScriptModule, tmp_path: Path) -> None:
    lowered = aten_recompute.lower(scripted, "segments")
    lowered(torch.rand(3, 16)).sum().backward()
    lowered.save(str(tmp_path / "net.pt"))
    loaded = aten_recompute.load(tmp_path / "net.pt")
    loaded(torch.rand(3, 16)).sum().backward()
    aten_recompute.clone(loaded)(torch.rand(3, 16))
    aten_recompute.unlower(loaded)
    aten_recompute.report(loaded)


def test_loading_from_an_open_file_does_not_warn(scripted: torch.jit.ScriptModule) -> None:
    saved = io.BytesIO(aten_recompute.lower(scripted, "all").save_to_buffer())
    aten_recompute.load(saved, map_location="cpu")


def test_enabling_does_not_warn(scripted: torch.jit.ScriptModule) -> None:
    with aten_recompute.enabled(scripted, "segments"):
        scripted(torch.rand(3, 16)).sum().backward()


def flops(x: Tensor) -> int:
    return x.numel()


def test_registering_a_function_does_not_warn() -> None:
    torch.library.define("deprecation_tests::twice", "(Tensor x) -> Tensor")
    aten_recompute.register_flops("deprecation_tests::twice", flops)


def test_importing_does_not_warn() -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r}); import torch; import warnings\n"
    program += "warnings.simplefilter('error'); import aten_recompute"
    subprocess.run([sys.executable, "-c", program], check=True)
