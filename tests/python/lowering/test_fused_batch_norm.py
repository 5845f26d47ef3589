"""A batch norm and the activation after it are one operator, with the bits of eager PyTorch's two operators."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import aten_recompute
from support.helpers import lowered_copy, only_variant

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
    gradients = [p.grad for p in (x, *module.parameters()) if p.requires_grad]
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


def no_numbers(size: tuple[int, ...], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Images with NaN or infinity in them: in a whole vector of elements, and at the end, where none is full."""
    torch.manual_seed(0)
    plain = torch.randn(size, dtype=dtype)
    images = {}
    for value in (float("nan"), float("inf"), -float("inf")):
        for place in (0, plain.numel() // 2, -1):
            images[f"{value} at {place}"] = plain.clone()
            images[f"{value} at {place}"].view(-1)[place] = value
    images["overflow"] = plain * torch.finfo(dtype).max / 8
    return images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_that_are_no_numbers_pass_as_in_eager(activation: str, training: bool, dtype: torch.dtype) -> None:
    """ATen's hardtanh_backward lets the gradient of NaN pass in the elements behind the last whole vector only."""
    for size in [(2, 3, 5, 7), (4, 2, 8, 8), (2, 1, 5, 5)]:
        module = Norm(activation, 4, size[1]).to(dtype).train(training)
        for frozen in (False, True):
            module.norm.requires_grad_(not frozen)
            state = copy.deepcopy(module.state_dict())
            lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(module)), "none")
            for name, x in no_numbers(size, dtype).items():
                for each in (module, lowered):
                    each.load_state_dict(state)  # running statistics that are no numbers would stay so
                for k, (a, b) in enumerate(zip(run(module, x), run(lowered, x), strict=True)):
                    assert torch.equal(a.isnan(), b.isnan()), (name, k)
                    assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)), (name, k)


def operators_of(lowered: torch.jit.ScriptModule) -> dict[str, int]:
    """The workspace of each operator of the first region, by name."""
    problem = aten_recompute.problems(lowered)[0]
    nodes = problem["nodes"]
    return dict(zip(nodes["name"], nodes["workspace_bytes"], strict=True))


@pytest.mark.skipif(torch.__version__.startswith(("2.11", "2.12")), reason="ATen's kernels have other bits")
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


# ---- what changes between forward and backward ----

STRATEGIES: dict[str, dict[str, object]] = {
    "none": {"strategy": "none"},
    "unfused": {"strategy": "none", "fuse": False},
    "all": {"strategy": "all"},
    "segments": {"strategy": "segments"},
    "min_cut": {"strategy": "min_cut"},
    "leanest": {"strategy": "budget", "memory_budget": 0.01, "unreachable": "leanest", "cost_model": "flops"},
}


class Stack(nn.Module):
    """Norms behind others, so that a plan computes some of their results again."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.first = Norm(activation, 4, 3)
        self.second = Norm(activation, 4, 3)
        self.third = Norm("identity", 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.third(torch.sin(self.second(torch.sin(self.first(torch.sin(x)))))))


def two_modes(module: nn.Module, x: torch.Tensor, first_is_training: bool) -> list[torch.Tensor | None]:
    """Forwards in two modes, the second of which may change running statistics, then the backward of both."""
    module.zero_grad()
    x = x.detach().requires_grad_()
    module.train(first_is_training)
    first = module(x)
    module.train(not first_is_training)
    second = module(3 * x + 2)
    module.train()
    module(x.detach() * 5 - 1)
    (first.pow(2).sum() + second.sum()).backward()
    return [first, second, x.grad, *(p.grad for p in module.parameters()), *module.buffers()]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["first", "last"])
@pytest.mark.parametrize("first_is_training", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("activation", ["relu", "hardtanh"])
def test_a_call_in_another_mode_does_not_change_what_a_backward_sees(
    activation: str, strategy: str, first_is_training: bool, layout: torch.memory_format
) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 6, 7).contiguous(memory_format=layout)
    eager = Stack(activation)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), STRATEGIES[strategy])
    for _ in range(2):
        for expected, result in zip(
            two_modes(eager, x, first_is_training), two_modes(lowered, x, first_is_training), strict=True
        ):
            assert expected is not None
            assert result is not None
            assert torch.equal(expected, result)


def changed_between(module: nn.Module, x: torch.Tensor, change: str) -> list[torch.Tensor]:
    module.zero_grad()
    x = x.detach().requires_grad_()
    y = module(x)
    norm = module.norm
    assert isinstance(norm, nn.Module)
    with torch.no_grad():
        if change == "bias":
            norm.bias.add_(1.5)
        elif change == "data of the bias":
            norm.bias.data.add_(1.5)
        elif change == "data of the weight":
            norm.weight.data.mul_(-2)
        elif change == "running statistics":
            norm.running_mean.data.add_(1)
            norm.running_var.data.mul_(3)
    y.pow(2).sum().backward()
    gradients = [p.grad for p in (x, *module.parameters())]
    return [g for g in gradients if g is not None]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("change", ["bias", "data of the bias", "data of the weight", "running statistics"])
@pytest.mark.parametrize("activation", ["relu", "relu6"])
def test_the_caller_may_change_what_eager_has_not_kept(activation: str, change: str, training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 6, 7)
    eager = Norm(activation, 4, 3).train(training)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none")
    for _ in range(2):
        both = (changed_between(module, x, change) for module in (eager, lowered))
        for expected, result in zip(*both, strict=True):
            assert torch.equal(expected, result)


def test_a_weight_that_the_caller_changes_is_refused_as_in_eager() -> None:
    x = torch.randn(2, 3, 4, 4)
    for module in (Norm("relu", 4, 3), aten_recompute.lower(torch.jit.script(Norm("relu", 4, 3)), "none")):
        y = module(x)
        with torch.no_grad():
            module.norm.weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("first_is_training", [False, True])
def test_gradients_that_are_differentiated_see_what_the_forward_saw(first_is_training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 6, 7, dtype=torch.float64)
    eager = Stack("relu").double()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none")
    results = []
    for module in (eager, lowered):
        given = x.clone().requires_grad_()
        module.train(first_is_training)
        first = module(given)
        module.train(not first_is_training)
        second = module(3 * given + 2)
        module.train()
        module(x * 5 - 1)
        (gradient,) = torch.autograd.grad(first.pow(2).sum() + second.sum(), given, create_graph=True)
        gradient.pow(2).sum().backward()
        results.append([gradient.detach(), given.grad, *(p.grad for p in module.parameters())])
    for expected, result in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_a_fused_norm_needs_no_more_memory(kind: str, training: bool) -> None:
    net: nn.Module
    if kind == "linear":
        net, x = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU()), torch.randn(128, 32)
    else:
        net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), torch.randn(4, 3, 16, 16)
    net.train(training)
    peaks = []
    for fuse in (True, False):
        lowered = lowered_copy(net, "none", profile=True, fuse=fuse)
        lowered(x).square().sum().backward()
        peaks.append(only_variant(lowered)["unplanned_peak_bytes"])
    assert peaks[0] <= peaks[1] * 1.01
