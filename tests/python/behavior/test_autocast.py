"""Calls under autocast are planned, and have the bits that eager PyTorch has under the same autocast."""

import contextlib
import copy
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
from benchmarks import models
from benchmarks.memory import Tracker
from support.helpers import assert_same, num_compiled, scripted_copy

Context = Callable[[], contextlib.AbstractContextManager[Any]]

CONTEXTS: dict[str, Context] = {
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", dtype=torch.float16),
    "without cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "all": {},
    "min_cut": {},
    "budget": {"memory_budget": 0.8, "unreachable": "leanest"},
}


class SharedWeights(nn.Module):
    """Reads each parameter twice: autocast casts it once, and adds its gradients in the lower precision."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(F.linear(x, self.weight, self.bias))
        return F.linear(h, self.weight, self.bias)


class SharedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        image = x.view(1, 1, 12, 8)
        return torch.tanh(self.conv(image)) + F.avg_pool2d(self.conv(image), 3, 1, 1)


class TiedEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(torch.arange(12) % 10) + x))


class Losses(nn.Module):
    """Has operators that autocast runs in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        loss = F.cross_entropy(y, torch.arange(x.size(0)) % 8) + F.mse_loss(y, x) + F.smooth_l1_loss(y, x)
        return loss + F.binary_cross_entropy_with_logits(y, torch.sigmoid(x))


class Promotions(nn.Module):
    """Has lists and operators whose operands have different types."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        both = torch.cat([y, x], 1).sum(1, keepdim=True) + torch.stack([y, x], 1).sum(1)
        return torch.addcmul(y.float(), y.float(), self.scale) + y * self.scale + both + torch.softmax(y, -1).sum()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unsqueeze(0))


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.batch_norm = nn.BatchNorm2d(8)
        self.group_norm = nn.GroupNorm(2, 8)
        self.layer_norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(torch.relu(self.batch_norm(self.conv(x.view(1, 1, 12, 8)))), 0.3, True)
        return self.layer_norm(self.group_norm(h).mean((2, 3)))


class OtherTypes(nn.Module):
    """Has layers in bfloat16 and in float64, which autocast leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.reduced = nn.Linear(8, 8).to(torch.bfloat16)
        self.exact = nn.Linear(8, 8).double()
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(self.exact(self.reduced(x.to(torch.bfloat16)).double()).float())


class Einsum(nn.Module):
    """Is composed of operators that cast."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("ij,jk->ik", x, self.weight)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8)
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(self.lstm(x.unsqueeze(0))[0][0], x)


class Masked(nn.Module):
    """Has sizes that data decide, so that compiling it runs its forward once, without effects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.norm(self.layer(x)), 0.2)
        chosen = y[y.sum(1) > 0]
        length = int(chosen.size(0)) + int((x > 3).sum())
        positions = torch.arange(length).unsqueeze(1).to(x.dtype)
        return torch.einsum("ij,kj->ik", self.layer(chosen.float()), self.layer.weight) + positions[: chosen.size(0)]


class SwitchedOff(nn.Module):
    """Reads a weight before and after a block without autocast, so it has several regions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.exact = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        with torch.autocast("cpu", enabled=False):
            z = self.exact(y.float())
        return self.layer(z) + y


class SwitchedOn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = torch.relu(self.layer(y))
        return self.layer(z.float()) + y


class DecidedByType(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        if y.dtype == torch.bfloat16:
            y = y * 2
        for _ in range(3):
            y = torch.tanh(self.layer(y))
        return y


PLANNED = (
    SharedWeights,
    SharedConvolution,
    TiedEmbedding,
    Losses,
    Promotions,
    Attention,
    Norms,
    OtherTypes,
    DecidedByType,
    Einsum,
    SwitchedOff,
    SwitchedOn,
    Masked,
)
UNPLANNED = (Recurrent,)


def step(module: nn.Module, x: Tensor, context: Context, seed: int) -> list[Tensor | None]:
    """Returns output, gradients and buffers. The backward runs outside of the context, as PyTorch recommends."""
    module.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    x = x.detach().requires_grad_()
    with context():
        output = module(x)
        loss = output.float().square().sum()
    loss.backward()
    return [output.detach(), x.grad, *(p.grad for p in module.parameters()), *(b.clone() for b in module.buffers())]


def assert_equal(ours: list[Tensor | None], theirs: list[Tensor | None]) -> None:
    """Compares to the bit, except that NaN equals zero and infinity equals the largest number."""

    def finite(tensors: list[Tensor | None]) -> list[Tensor | None]:
        return [None if each is None else each.nan_to_num() for each in tensors]

    assert_same(finite(ours), finite(theirs))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("strategy", OPTIONS)
@pytest.mark.parametrize("kind", [*PLANNED, *UNPLANNED])
def test_bits_are_those_of_eager_autocast(kind: type[nn.Module], strategy: str, context: str) -> None:
    torch.manual_seed(0)
    eager = kind()
    lowered = aten_recompute.lower(scripted_copy(eager), strategy, **OPTIONS[strategy])
    x = torch.randn(12, 8)
    try:
        step(eager, x, CONTEXTS[context], 0)
    except RuntimeError:  # no kernel in float16; or a block in bfloat16 finds a weight in float16 in the cache
        with pytest.raises(RuntimeError):
            step(lowered, x, CONTEXTS[context], 0)
        return
    lowered = aten_recompute.lower(scripted_copy(eager), strategy, **OPTIONS[strategy])
    for seed in range(3):
        assert_equal(step(lowered, x, CONTEXTS[context], seed), step(eager, x, CONTEXTS[context], seed))
    assert (num_compiled(lowered) > 0) == (kind in PLANNED)
    # Without autocast, the same module follows another plan.
    assert_equal(step(lowered, x, contextlib.nullcontext, 3), step(eager, x, contextlib.nullcontext, 3))
    assert num_compiled(lowered) > int(kind in PLANNED)


class OneLayer(nn.Module):
    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layer = layer(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_a_warning_names_what_has_no_plan(
    layer: type[nn.LSTM] | type[nn.GRU], capfd: pytest.CaptureFixture[str]
) -> None:
    lowered = aten_recompute.lower(torch.jit.script(OneLayer(layer)), "all")
    with CONTEXTS["bfloat16"](), contextlib.suppress(RuntimeError):  # not all CPUs have an lstm in bfloat16
        lowered(torch.randn(3, 2, 8))
    (warning,) = capfd.readouterr().err.strip().splitlines()
    assert f"under autocast, aten::{layer.__name__.lower()}" in warning
    assert warning.endswith("is composed of operators that cast")


@pytest.mark.parametrize("name", models.NAMES)
@pytest.mark.parametrize("strategy", ["segments", "budget"])
def test_benchmark_models_have_eagers_bits(name: str, strategy: str) -> None:
    workload = models.make(name, size="small")
    lowered = aten_recompute.lower(scripted_copy(workload.module), strategy, **OPTIONS.get(strategy, {}))

    def gradients(module: nn.Module, seed: int) -> list[Tensor | None]:
        module.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        with CONTEXTS["bfloat16"]():
            loss = workload.loss(module)
        loss.backward()
        return [loss.detach(), *(p.grad for p in module.parameters())]

    for seed in range(2):
        assert_equal(gradients(lowered, seed), gradients(workload.module, seed))
    assert num_compiled(lowered) == 1


@pytest.mark.parametrize("name", ["gpt", "resnet50", "bert"])
def test_budgets_are_kept_under_autocast(name: str, tracker: Tracker) -> None:
    workload = models.make(name, size="small")
    budget: float | int = 0.8

    def lower_to_budget() -> torch.jit.ScriptModule:
        module = scripted_copy(workload.module)
        return aten_recompute.lower(module, "budget", memory_budget=budget, release_outputs=True)

    lowered = lower_to_budget()

    def train() -> None:
        lowered.zero_grad(set_to_none=True)
        with CONTEXTS["bfloat16"]():
            loss = workload.loss(lowered)
        loss.backward()

    try:
        train()
    except aten_recompute.BudgetUnreachableError as error:
        # On a CPU with AVX2 only, the backward of the first convolution has a workspace of half of the peak.
        budget = int(1.01 * error.smallest_peak_bytes)  # the loss is outside of the region
        lowered = lower_to_budget()
    for _ in range(3):
        train()
    lowered.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        train()
    (region,) = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]
    variant = region["variants"][-1]
    assert peak.bytes <= (budget if budget > 1 else 0.8 * variant["unplanned_peak_bytes"])
    assert abs(peak.bytes - variant["predicted_peak_bytes"]) <= 0.03 * variant["predicted_peak_bytes"]


@pytest.mark.parametrize("kind", [SharedWeights, SharedConvolution, Attention, Norms, Losses])
@pytest.mark.parametrize("forward_too", [True, False])
def test_a_backward_under_autocast_is_eagers(kind: type[nn.Module], forward_too: bool) -> None:
    eager = kind()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(12, 8)

    def gradients(module: nn.Module) -> list[Tensor | None]:
        module.zero_grad(set_to_none=True)
        torch.manual_seed(0)
        with CONTEXTS["bfloat16"]() if forward_too else contextlib.nullcontext():
            loss = module(x).float().square().sum()
        with CONTEXTS["bfloat16"]():
            loss.backward()
        return [p.grad for p in module.parameters()]

    assert_equal(gradients(lowered), gradients(eager))


def test_a_backward_under_autocast_says_once_that_no_budget_is_kept() -> None:
    """It says so once per process, so this is a process of its own."""
    script = """
import torch, aten_recompute
lowered = aten_recompute.lower(torch.jit.script(torch.nn.Linear(8, 8)), "budget", memory_budget=1.0)
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered(torch.randn(4, 8)).sum().backward()
"""
    path = [str(Path(aten_recompute.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.count("a backward runs under autocast") == 1


def test_second_derivatives_under_autocast() -> None:
    eager = SharedWeights()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")

    def second(module: nn.Module) -> Tensor:
        x = torch.linspace(-1, 1, 96).view(12, 8).requires_grad_()
        with CONTEXTS["bfloat16"]():
            y = module(x)
        (gradient,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
        (result,) = torch.autograd.grad(gradient.square().sum(), x)
        return result

    ours, theirs = second(lowered), second(eager)
    assert (ours - theirs).norm() <= 0.01 * theirs.norm()


def test_gradients_are_scaled_and_steps_skipped_as_in_eager() -> None:
    eager = Norms()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(12, 8)

    def train(module: nn.Module) -> list[Tensor]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for seed in range(4):
            optimizer.zero_grad()
            torch.manual_seed(seed)
            with CONTEXTS["float16"]():
                loss = module(x).float().square().sum() * (1e30 if seed == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return [torch.tensor(scaler.get_scale()), *(p.detach().clone() for p in module.parameters())]

    theirs = train(copy.deepcopy(eager))
    for a, b in zip(train(lowered), theirs, strict=True):
        assert torch.equal(a, b)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3, padding="same")
        self.b = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)
        self.c = nn.Conv1d(6, 2, 3, dilation=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))).flatten(2))


@pytest.mark.parametrize("strategy", OPTIONS)
def test_traced_convolutions_are_cast(strategy: str) -> None:
    """A trace has another operator in their place, which stock TorchScript does not cast on the CPU."""
    torch.manual_seed(0)
    eager = Convolutions()
    x = torch.randn(2, 3, 8, 8)
    traced = torch.jit.trace(copy.deepcopy(eager), x)
    lowered = aten_recompute.lower(traced, strategy, **OPTIONS[strategy])
    for seed in range(2):
        for context in (*CONTEXTS.values(), contextlib.nullcontext):
            assert_equal(step(lowered, x, context, seed), step(eager, x, context, seed))
    assert num_compiled(lowered) == len(CONTEXTS) + 1


def test_operators_that_are_composed_of_others_are_planned_where_nothing_is_cast() -> None:
    class Composed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.hstack([x, F.pad(x, (1, 1), value=0.5)])
            return y.repeat(2, 1).sin()

    lowered = aten_recompute.lower(scripted_copy(Composed()), "all")
    x = torch.randn(12, 8)
    assert_equal(step(lowered, x, CONTEXTS["bfloat16"], 0), step(Composed(), x, CONTEXTS["bfloat16"], 0))
    assert num_compiled(lowered) == 1


class Products(nn.Module):
    """Composed of operators that cast: weights are cast within, as they are or as views."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8))
        self.equation = equation

    def forward(self, x: Tensor) -> Tensor:
        if self.equation == "multi_dot":
            return torch.linalg.multi_dot([x, self.w, self.w.sin(), self.w])
        if self.equation == "tensordot":
            return torch.tensordot(x, self.w, dims=1) + torch.tensordot(x, self.w.t(), dims=1)
        if self.equation == "power":
            return x @ torch.linalg.matrix_power(self.w, 3)
        return torch.tanh(torch.einsum(self.equation, x, self.w)) + self.w.sum()


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "ij,kj->ki", "ij,jk->i", "ij,kl->ik", "ij,jj->i", "ij,jk->ijk", "multi_dot", "tensordot", "power"],
)
def test_operators_that_are_composed_of_products(equation: str, context: str) -> None:
    torch.manual_seed(0)
    eager = Products(equation)
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    for seed in range(2):
        x = torch.randn(12, 8)
        assert_equal(step(lowered, x, CONTEXTS[context], seed), step(eager, x, CONTEXTS[context], seed))


class OneTensorTwice(nn.Module):
    """Casts one tensor for two operands, where there is no cache: three gradients are added in eager's order."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.0
        if self.kind == "attention":
            y = F.scaled_dot_product_attention(x, x, x)
        elif self.kind == "mm":
            y = x[:8] @ x[:8]
        elif self.kind == "einsum":
            y = torch.einsum("ij,kj->ik", x, x)
        elif self.kind == "cat":
            y = torch.cat([x, torch.mm(x, x[:8]), x])
        else:
            y = torch.addmm(x, torch.mm(x, x.t()), x)
        return y.float().sum() + x.sin().sum()


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["attention", "mm", "einsum", "cat", "addmm"])
def test_a_tensor_that_is_cast_for_two_operands(kind: str, context: str) -> None:
    torch.manual_seed(0)
    eager = OneTensorTwice(kind)
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    for seed in range(8):
        x = torch.randn(12, 8)
        assert_equal(step(lowered, x, CONTEXTS[context], seed), step(eager, x, CONTEXTS[context], seed))
    assert num_compiled(lowered) == 1


def test_constants_of_the_method_are_described_like_its_tensors() -> None:
    class WeightedLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            weights = torch.tensor([2.0, 1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 0.5])
            return (
                F.binary_cross_entropy_with_logits(y, torch.sigmoid(x), pos_weight=torch.ones(8) * 2)
                + (y * weights).mean()
            )

    torch.manual_seed(0)
    eager = WeightedLoss()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(12, 8)
    assert_equal(step(lowered, x, CONTEXTS["bfloat16"], 0), step(eager, x, CONTEXTS["bfloat16"], 0))
    assert num_compiled(lowered) == 1


def test_sparse_inputs_run_without_a_plan() -> None:
    class Sampled(nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return torch.sparse.sampled_addmm(x, w, w).to_dense()

    traced = torch.jit.trace(Sampled(), (torch.eye(3).to_sparse_csr(), torch.ones(3, 3)), check_trace=False)
    lowered = aten_recompute.lower(traced, "all")
    w = torch.randn(3, 3, requires_grad=True)
    with CONTEXTS["bfloat16"]():
        ours, theirs = (m(torch.eye(3).to_sparse_csr(), w) for m in (lowered, Sampled()))
    assert torch.equal(ours, theirs)


def test_the_settings_of_autocast_choose_the_plan() -> None:
    eager = Losses()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(12, 8)
    for turn in range(2):
        for context in (*CONTEXTS.values(), contextlib.nullcontext):
            assert_equal(step(lowered, x, context, turn), step(eager, x, context, turn))
        assert num_compiled(lowered) == len(CONTEXTS) + 1
