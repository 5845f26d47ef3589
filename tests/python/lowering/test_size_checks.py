"""Norms check sizes before they run. The check is compiled without a loop, and raises TorchScript's errors."""

import io
from typing import Any

import pytest
import torch
from torch import nn

import aten_recompute

NORMS = {
    "batch": (nn.BatchNorm1d(4), (1, 4), (2, 4)),
    "batch of an image": (nn.BatchNorm2d(4), (1, 4, 1, 1), (1, 4, 1, 2)),
    "instance": (nn.InstanceNorm1d(4), (3, 4, 1), (3, 4, 2)),
    "group": (nn.GroupNorm(4, 4), (1, 4), (1, 4, 2)),
}


def lowered(norm: nn.Module, loaded: bool) -> Any:
    module = torch.jit.script(nn.Sequential(norm, nn.ReLU()))
    if loaded:
        file = io.BytesIO()
        torch.jit.save(module, file)
        file.seek(0)
        module = torch.jit.load(file)
    return aten_recompute.lower(module, {"strategy": "budget", "memory_budget": 1.0})


def reason(error: pytest.ExceptionInfo[torch.jit.Error]) -> str:
    return str(error.value).strip().splitlines()[-1]


@pytest.mark.parametrize("loaded", [False, True], ids=["scripted", "loaded"])
@pytest.mark.parametrize("name", NORMS)
def test_a_size_that_torchscript_refuses_raises_the_same_error(name: str, loaded: bool) -> None:
    norm, bad, good = NORMS[name]
    module = lowered(norm, loaded)
    x = torch.randn(good, requires_grad=True)
    module(x).sum().backward()
    with pytest.raises(torch.jit.Error, match="Expected more than 1") as torchscripts:
        torch.jit.script(norm)(torch.randn(bad))
    with pytest.raises(torch.jit.Error) as ours:
        module(torch.randn(bad))
    assert reason(ours) == reason(torchscripts)


@pytest.mark.parametrize("loaded", [False, True], ids=["scripted", "loaded"])
@pytest.mark.parametrize("name", ["batch", "instance"])
def test_the_check_of_sizes_has_no_loop(name: str, loaded: bool) -> None:
    norm, _, good = NORMS[name]
    module = lowered(norm, loaded)
    module(torch.randn(good, requires_grad=True)).sum().backward()
    (problem,) = aten_recompute.problems(module)
    names = problem["nodes"]["name"]
    assert any("prim::If" in node for node in names)
    assert not any("prim::Loop" in node for node in names)
