"""Estimates of a step's memory, which run nothing, beside what steps measure."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from aten_recompute import estimate, profile
from benchmarks import models
from benchmarks.memory import tracker
from support.helpers import lowered_copy


def predicted_by_a_step(module: nn.Module, inputs: tuple[Tensor, ...], **options: Any) -> int:
    """Returns the peak without recomputation that a step is planned with, whose operators ran."""
    lowered = lowered_copy(module, "budget", memory_budget=1.0, cost_model="flops", **options)
    lowered(*inputs)
    specialization = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]
    if specialization["plans"]:
        return specialization["plans"][0]["unplanned_peak_bytes"]
    return specialization["regions"][0]["variants"][0]["unplanned_peak_bytes"]


def make(name: str) -> models.Workload:
    """Makes a small benchmark model.

    ResNet-50 and the U-Net have their full size. Images of some pixels take less than what oneDNN takes for its work,
    which differs between instruction sets.
    """
    return models.make(name, "full" if name in ("resnet50", "unet") else "small")


def measured_peak(workload: models.Workload, **options: Any) -> int:
    lowered = lowered_copy(workload.module, **options, arena="off")
    tracker.install()
    for _ in range(3):
        lowered.zero_grad(set_to_none=True)
        with tracker.measure_peak() as peak:
            workload.loss(lowered).backward()
    return peak.bytes


@pytest.mark.parametrize("name", models.NAMES)
def test_the_peak_without_recomputation_is_within_5_percent_of_a_step(name: str) -> None:
    workload = make(name)
    scripted = torch.jit.script(workload.module)
    result = estimate(scripted, workload.inputs, release_outputs=workload.release_outputs)
    assert result["unplanned_peak_bytes"] == pytest.approx(measured_peak(workload, strategy="none"), rel=0.05)
    assert result["regions"] == 1
    assert 0 < result["smallest_peak_bytes"] < result["unplanned_peak_bytes"]
    assert result["backward_flops"] > result["forward_flops"] > 0


@pytest.mark.parametrize("name", ["gpt", "transformer", "bert", "densenet121", "mobilenet"])
def test_the_peak_at_a_budget_is_within_5_percent_of_a_step(name: str) -> None:
    workload = models.make(name, "small")
    release = workload.release_outputs
    (result,) = estimate(torch.jit.script(workload.module), workload.inputs, [0.6], release_outputs=release)["budgets"]
    assert result["reachable"]
    assert result["peak_bytes"] <= result["budget_bytes"]
    assert result["recomputed_flops"] > 0
    assert 1.0 < result["time_factor"] < 2.0
    # Plans from measured times differ from run to run; an estimate has computed ones.
    measured = measured_peak(
        workload, strategy="budget", memory_budget=0.6, cost_model="flops", release_outputs=release
    )
    assert result["peak_bytes"] == pytest.approx(measured, rel=0.05)


class Attention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(64, 192)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projection(x).view(x.size(0), x.size(1), 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout).pow(2).sum()


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 16, 3, padding=1)
        self.group = nn.GroupNorm(4, 16)
        self.instance = nn.InstanceNorm2d(16)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.instance(F.gelu(self.group(self.convolution(x)))))
        return F.interpolate(self.dropout(y), scale_factor=2.0, mode="bilinear").sum()


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.out = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0]).sum()


class Loop(nn.Module):
    """Has control flow, and an argument with a default value."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])

    def forward(self, x: Tensor, count: int = 3) -> Tensor:
        for i, layer in enumerate(self.layers):
            if i < count and x.size(0) > 2:
                x = torch.tanh(layer(x) + torch.arange(64, dtype=torch.float))
        return x.pow(2).mean()


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 4, 32))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("btc,chd->bhtd", x, self.weight)
        return torch.logsumexp(torch.softmax(y @ y.transpose(-1, -2), -1).cumsum(-1), -1).sum()


class TwoRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        print("between")
        return self.second(torch.relu(y).sigmoid()).pow(2).sum()


TOKENS = torch.randn(8, 32, 64)
IMAGES = torch.randn(4, 8, 32, 32)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "attention": (lambda: Attention(0.0), (TOKENS,)),
    "attention with dropout": (lambda: Attention(0.1), (TOKENS,)),
    "encoder": (lambda: nn.Sequential(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)), (TOKENS,)),
    "bfloat16": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)).bfloat16(),
        (TOKENS.bfloat16(),),
    ),
    "norms": (Norms, (IMAGES,)),
    "float64": (lambda: Norms().double(), (IMAGES.double(),)),
    "channels last": (
        lambda: Norms().to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        (IMAGES.contiguous(memory_format=torch.channels_last),),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM(32, 48, 2, batch_first=True)), (torch.randn(8, 20, 32),)),
    "gru": (lambda: Recurrent(nn.GRU(32, 48)), (torch.randn(20, 8, 32),)),
    "loop": (Loop, (torch.randn(128, 64),)),
    "einsum": (Einsum, (TOKENS,)),
    "two regions": (TwoRegions, (torch.randn(512, 64),)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("where", ["real", "meta", "meta inputs"])
def test_an_estimate_predicts_what_a_step_does(case: str, where: str) -> None:
    make, inputs = CASES[case]
    module = make()
    expected = predicted_by_a_step(module, inputs)
    if where != "real":
        inputs = tuple(tensor.to("meta") for tensor in inputs)
    if where == "meta":
        module = copy.deepcopy(module).to("meta")
    result = estimate(torch.jit.script(module), inputs)
    assert result["unplanned_peak_bytes"] == pytest.approx(expected, rel=0.05)
    assert result["device"] == "cpu"


def test_evaluation_and_frozen_parameters_take_less() -> None:
    workload = models.make("resnet50", "small")
    scripted = torch.jit.script(workload.module)
    training = estimate(scripted, workload.inputs)["unplanned_peak_bytes"]
    for parameter in list(scripted.parameters())[:-2]:
        parameter.requires_grad_(False)
    assert estimate(scripted, workload.inputs)["unplanned_peak_bytes"] < training


def test_options_of_a_budget_change_the_estimate() -> None:
    scripted = torch.jit.script(nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]))
    x = torch.randn(4, 256)
    plain = estimate(scripted, x)["unplanned_peak_bytes"]
    assert estimate(scripted, x, accumulate=True)["unplanned_peak_bytes"] < plain - 500_000


def test_a_lowered_module_is_estimated_as_the_one_that_it_was_made_from() -> None:
    workload = models.make("gpt", "small")
    scripted = torch.jit.script(workload.module)
    lowered = aten_recompute.lower(scripted, "all")
    both = [estimate(module, workload.inputs, ["60%", 1_000_000, "900KiB"]) for module in (scripted, lowered)]
    for result in both:
        del result["seconds"]  # type: ignore[misc]
    assert both[0] == both[1]
    assert [each["budget"] for each in both[0]["budgets"]] == ["60%", 1_000_000, "900KiB"]


def test_an_estimate_changes_nothing() -> None:
    workload = models.make("resnet50", "small")
    scripted = torch.jit.script(workload.module)
    before = {name: value.clone() for name, value in scripted.state_dict().items()}
    state = torch.random.get_rng_state()
    estimate(scripted, workload.inputs, [0.5])
    assert all(torch.equal(before[name], value) for name, value in scripted.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(parameter.grad is None for parameter in scripted.parameters())


def test_a_budget_that_is_out_of_reach_is_no_error() -> None:
    workload = models.make("mlp", "small")
    (result,) = estimate(torch.jit.script(workload.module), workload.inputs, [0.1])["budgets"]
    assert result["reachable"] is False
    assert "peak_bytes" not in result


RESIDENT = """
import json, resource, sys, time, torch
from torch import nn
import aten_recompute
from benchmarks.networks.gpt import GPT

def resident():
    return 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])

with torch.device("meta"):
    module = torch.jit.script(GPT(blocks=12, width=768, heads=12, context=512, vocabulary=4096))
    tokens = torch.zeros(8, 512, dtype=torch.long)
open("/proc/self/clear_refs", "w").write("5")  # the highest resident memory counts from here
before = resident()
result = aten_recompute.estimate(module, (tokens, tokens), [0.5, 0.25])
print(json.dumps([result["unplanned_peak_bytes"], resident() - before, [b["reachable"] for b in result["budgets"]]]))
"""


def test_an_estimate_takes_no_memory_of_the_size_of_the_model() -> None:
    root = Path(models.__file__).resolve().parent.parent
    ran = subprocess.run(
        [sys.executable, "-c", RESIDENT],
        check=True,
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'python'}"},
    )
    peak, resident, reachable = json.loads(ran.stdout.splitlines()[-1])
    assert peak > 4e9
    assert resident < 50 * 2**20
    assert reachable == [True, True]


# ---- what cannot be estimated ----


class DataDecide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.sum() < 3.0):
            x = self.linear(x)
        return x.sum()


class DataDecideSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[x > 0].sum()


X = torch.randn(4, 4)
LINEAR = torch.jit.script(nn.Linear(4, 4))
ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "data decide": (lambda: estimate(torch.jit.script(DataDecide()), X), "data decide what the method does"),
    "data decide sizes": (
        lambda: estimate(torch.jit.script(DataDecideSizes()), X),
        r"aten::index\.Tensor: its results are not known without running it \(data decide the sizes",
    ),
    "data decide a profile": (
        lambda: profile(torch.jit.script(DataDecide()), X, meta=True),
        "profile: .*data decide what the method does",
    ),
    "budget": (lambda: estimate(LINEAR, X, [1.5]), r'key "memory_budget": got 1.5, accepted is a fraction'),
    "text": (lambda: estimate(LINEAR, X, ["half"]), r'key "memory_budget": got "half"'),
    "option": (lambda: estimate(LINEAR, X, [0.5], acumulate=True), 'key "acumulate" is unknown.*"accumulate"'),
    "budget as option": (lambda: estimate(LINEAR, X, memory_budget=0.5), '"memory_budget" does not belong here'),
    "method": (lambda: estimate(LINEAR, X, method="forwrd"), 'has no method "forwrd"; did you mean "forward"'),
    "device": (lambda: estimate(LINEAR, X, device="gpu"), 'device: "gpu" is none; "cpu" and "cuda" are'),
    "missing argument": (lambda: estimate(LINEAR, ()), r"forward\(\) is missing value for argument 'input'"),
    "type of an argument": (lambda: estimate(LINEAR, (3,)), "Expected a value of type 'Tensor'"),
    "sizes": (lambda: estimate(LINEAR, torch.randn(4, 5)), "mat1 and mat2 shapes cannot be multiplied"),
    "no gradient": (lambda: estimate(torch.jit.script(nn.ReLU()), X), "nothing in the method needs a gradient"),
    "sparse": (lambda: estimate(LINEAR, X.to_sparse()), "dense tensors, not one of layout Sparse and type Float"),
    "meta tensors": (
        lambda: profile(LINEAR, X.to("meta")),
        "on the meta device, where nothing can be timed; meta=True",
    ),
    "other device": (lambda: profile(LINEAR, X, "cuda"), "a tensor is on cpu, not on cuda: move"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_is_one_line_that_names_the_reason(error: str) -> None:
    call, message = ERRORS[error]
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(("estimate: ", "profile: "))


@pytest.mark.parametrize("function", [estimate, profile])
def test_a_plain_module_is_no_scripted_one(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="takes a scripted or traced module"):
        function(nn.Linear(4, 4), X)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("size", [6, 24])
@pytest.mark.parametrize("output_padding", [0, 1])
def test_kernels_that_unfold_small_images_are_known(batch: int, size: int, output_padding: int) -> None:
    """PyTorch leaves images that are small and alone to kernels that unfold them, and other images to oneDNN."""
    net = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1),
        nn.Tanh(),
        nn.ConvTranspose3d(8, 4, 3, stride=2, output_padding=output_padding),
        nn.Tanh(),
        nn.Conv3d(4, 2, 1),
    )
    x = torch.randn(batch, 3, size, size, size)
    lowered = aten_recompute.lower(torch.jit.script(net), "none", profile=True)
    lowered(x).sum().backward()
    (region,) = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]
    measured = region["variants"][0]["unplanned_peak_bytes"]
    estimated = aten_recompute.estimate(torch.jit.script(net), x)["unplanned_peak_bytes"]
    assert abs(estimated - measured) <= 0.05 * measured


@pytest.mark.parametrize("budget", [0.9, "90%", torch.tensor(0.9)])
def test_a_single_budget_needs_no_list(budget: Any) -> None:
    module = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)))
    found = aten_recompute.estimate(module, torch.randn(64, 8), budget)["budgets"]
    assert [each["budget"] for each in found] == [budget]
    assert found[0]["budget_bytes"] == pytest.approx(0.9 * 8480, abs=2)
