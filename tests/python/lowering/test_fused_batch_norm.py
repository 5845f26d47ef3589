"""A batch norm and the activation after it are one operator, with the bits of eager PyTorch's two operators."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import aten_recompute

ACTIVATIONS = {
    "relu": nn.ReLU,
    "relu_": lambda: nn.ReLU(inplace=True),
    "relu6": nn.ReLU6,
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.75),
    "identity": nn.Identity,
}
# Images of more and fewer elements than a vector has, with a rest and without; more channels than are worked on
# together.
SIZES = {
    "rows": (2, 9, 5, 7),
    "whole": (4, 16, 8, 8),
    "short": (6, 3, 1, 3),
    "lines": (3, 5, 33),
    "volumes": (2, 3, 3, 2, 5),
}


class Norm(nn.Module):
    def __init__(self, activation: str, rank: int, channels: int) -> None:
        super().__init__()
        norm = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[rank]
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.norm = norm(channels)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.norm(x * self.scale))
        return y * y


def run(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, all gradients and all buffers after one step."""
    x = x.detach().requires_grad_()
    module.zero_grad()
    y = module(x)
    # A gradient with zeros and both signs.
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    gradients = [p.grad for p in (x, *module.parameters())]
    assert all(g is not None for g in gradients)
    return [y, *(g for g in gradients if g is not None), *module.buffers()]


def check(module: nn.Module, spec: dict[str, object], x: torch.Tensor) -> torch.jit.ScriptModule:
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), spec)
    for _ in range(2):
        for expected, result in zip(run(module, x), run(lowered, x), strict=True):
            assert torch.equal(expected, result)
    return lowered


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_bits_are_those_of_eager(activation: str, size: str, dtype: torch.dtype, training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(SIZES[size], dtype=dtype)
    module = Norm(activation, x.dim(), x.size(1)).to(dtype).train(training)
    check(module, {"strategy": "none"}, x)
    check(module, {"strategy": "budget", "memory_budget": 0.5, "unreachable": "leanest"}, x)


@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_other_layouts_and_types_run_the_kernels_of_aten(activation: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 5, 5)
    module = Norm(activation, 4, 6)
    check(module, {"strategy": "none"}, x.to(memory_format=torch.channels_last))
    check(module, {"strategy": "none"}, x.transpose(2, 3))
    check(module, {"strategy": "none"}, x[:, :, :1, :1])
    check(copy.deepcopy(module).bfloat16(), {"strategy": "none"}, x.bfloat16())


def test_values_that_are_no_numbers_pass() -> None:
    x = torch.randn(2, 3, 4, 4)
    x[0, 0, 0, 0] = float("nan")
    x[1, 1, 0, 0] = float("inf")
    module = Norm("relu6", 4, 3)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), "none")
    for expected, result in zip(run(module, x), run(lowered, x), strict=True):
        torch.testing.assert_close(expected, result, rtol=0, atol=0, equal_nan=True)


def operators_of(lowered: torch.jit.ScriptModule) -> dict[str, int]:
    """The workspace of each operator of the first region, by name."""
    problem = aten_recompute.problems(lowered)[0]
    nodes = problem["nodes"]
    return dict(zip(nodes["name"], nodes["workspace_bytes"], strict=True))


def test_one_operator_computes_both() -> None:
    x = torch.randn(4, 16, 8, 8)
    module = Norm("relu", 4, 16)
    fused = check(module, {"strategy": "none", "profile": True}, x)
    apart = check(module, {"strategy": "none", "profile": True, "fuse": False}, x)
    assert not any("relu" in name or "threshold" in name for name in operators_of(fused))
    assert any("relu" in name for name in operators_of(apart))
    # The kernels of ATen need memory for coefficients; those that run here do not.
    workspaces = [size for name, size in operators_of(fused).items() if "batch_norm" in name]
    assert workspaces == [0, 0]


def test_strategies_that_name_operators_see_those_of_the_program() -> None:
    x = torch.randn(4, 16, 8, 8)
    lowered = check(Norm("relu", 4, 16), {"strategy": "ops", "ops": ["relu"], "profile": True}, x)
    assert any("relu" in name for name in operators_of(lowered))


def test_kernels_of_other_bits_do_not_run() -> None:
    """Without vector instructions ATen adds in another order, which the kernels of this library do not."""
    command = [sys.executable, "-m", "pytest", "-q", "-k", "bits_are_those_of_eager and rows", __file__]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
