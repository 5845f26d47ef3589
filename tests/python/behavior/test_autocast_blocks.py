"""Blocks of torch.autocast that a method has itself are part of its region."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, num_compiled, scripted_copy

Context = Callable[[], contextlib.AbstractContextManager[Any]]

AROUND: dict[str, Context] = {
    "nothing": contextlib.nullcontext,
    "bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "disabled": lambda: torch.autocast("cpu", enabled=False),
    "without cache": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "CUDA": lambda: torch.autocast("cuda", enabled=False),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "all": {},
    "segments": {},
    "budget": {"memory_budget": 0.8, "unreachable": "leanest"},
}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)


class On(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.tanh(self.a(x))
            y = self.norm(self.b(y))
        return y.float() * torch.sin(x)


class Off(Layers):
    """The rotary embeddings of language models are written like this."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.a(x))
        with torch.autocast("cpu", enabled=False):
            y = self.b(y.float()).cos()
        return self.a(y)


class Nested(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.tanh(self.a(x))
            with torch.autocast("cpu", enabled=False):
                z = self.b(y.float())
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    z = self.a(z)
            y = self.b(y) + z
        return y.float() + self.a(x)


class TwoBlocks(Layers):
    """The cache is emptied between the blocks, unless there is one around them."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(torch.tanh(self.a(x)))
        z = self.a(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.a(torch.tanh(self.a(z)))
        return y.float() + z.float()


class InLoop(Layers):
    def forward(self, x: Tensor) -> Tensor:
        for i in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=i != 1):
                x = torch.tanh(self.a(x.float() if i == 1 else x))
        return self.b(x.float())


class Asks(Layers):
    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_cpu_enabled():
            x = x * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if torch.is_autocast_cpu_enabled():
                x = torch.tanh(self.a(x))
        if not torch.is_autocast_cpu_enabled():
            x = x.float().exp()
        return self.b(x.float())


class WithoutCache(Layers):
    """TorchScript's class of autocast forgets that the cache is off. Each use of a weight has a cast of its own."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            x = self.a(torch.tanh(self.a(x)))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = self.a(torch.tanh(self.a(x)))
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=x.size(0) > 100):
            x = self.b(torch.tanh(self.b(x)))
        with torch.cpu.amp.autocast(True, torch.bfloat16, False):
            return self.b(torch.tanh(self.b(x))).float()


class DefaultType(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            x = torch.tanh(self.a(x))
            y = self.b(x)
        return y.float() if y.dtype == torch.float16 else y.float() * 2


class UnsupportedType(Layers):
    """PyTorch warns that there is no autocast to float32, and casts nothing."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float32):
            x = torch.tanh(self.a(x))
        return self.b(x)


class Inner(Layers):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.b(torch.tanh(self.a(x)))


class OfSubmodules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Inner(), Inner()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x.float()) + x
        return x.float()


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[empty-body]
        pass


class ByInterface(nn.Module):
    """The method of a submodule that is called through an interface has a block."""

    layer: Layer

    def __init__(self) -> None:
        super().__init__()
        self.layer = Inner()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer.forward(x)
        return y.float() + x


class ReturnsEarly(Layers):
    """Data decide what the block computes."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.tanh(self.a(x))
            if bool(y.float().sum() > 0):
                y = self.b(y)
        return self.a(y.float())


class WithBatchNorm(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.low = nn.BatchNorm1d(8)
        self.exact = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = F.relu(self.low(self.a(x)))
        with torch.autocast("cpu", enabled=False):
            x = F.relu(self.exact(x.float()))
        return F.dropout(x, 0.3)


KINDS = (
    On,
    Off,
    Nested,
    TwoBlocks,
    InLoop,
    Asks,
    WithoutCache,
    DefaultType,
    UnsupportedType,
    OfSubmodules,
    ByInterface,
    ReturnsEarly,
    WithBatchNorm,
)


def step(module: nn.Module, x: Tensor, around: Context, seed: int) -> list[Tensor | None]:
    """Returns output, gradients and buffers."""
    module.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    x = x.detach().requires_grad_()
    with around():
        output = module(x)
        loss = output.float().square().sum()
    loss.backward()
    return [output.detach(), x.grad, *(p.grad for p in module.parameters()), *(b.clone() for b in module.buffers())]


@pytest.mark.filterwarnings("ignore:`torch.cpu.amp.autocast")
@pytest.mark.filterwarnings("ignore:In CPU autocast, but the target dtype is not supported")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("strategy", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_eagers_and_nothing_ends_the_region(kind: type[nn.Module], strategy: str, around: str) -> None:
    torch.manual_seed(0)
    eager = kind()
    lowered = aten_recompute.lower(scripted_copy(eager), strategy, **OPTIONS[strategy])
    for seed in range(4):
        x = torch.randn(12, 8) * (-1) ** seed
        assert_same(step(lowered, x, AROUND[around], seed), step(eager, x, AROUND[around], seed))
    (method,) = aten_recompute.report(lowered)["methods"]
    assert method["unplanned_calls"] == []
    for specialization in method["specialisations"]:
        assert len(specialization["regions"]) == 1
        assert specialization["breaks"] == []
    assert num_compiled(lowered) > 0


def test_the_settings_around_the_call_choose_the_plan() -> None:
    torch.manual_seed(0)
    eager = Nested()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(12, 8)
    for turn in range(2):
        for around in AROUND.values():
            assert_same(step(lowered, x, around, turn), step(eager, x, around, turn))


def test_the_default_type_is_part_of_what_is_compiled() -> None:
    torch.manual_seed(0)
    eager = DefaultType()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(12, 8)
    before = torch.get_autocast_dtype("cpu")
    try:
        for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
            torch.set_autocast_dtype("cpu", dtype)
            assert_same(step(lowered, x, AROUND["nothing"], 0), step(eager, x, AROUND["nothing"], 0))
    finally:
        torch.set_autocast_dtype("cpu", before)


class Raises(Layers):
    def forward(self, x: Tensor, limit: float) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            if bool(x.max() > limit):
                raise ValueError("too large")
            y = self.b(torch.tanh(y))
        return y


@pytest.mark.parametrize("strategy", OPTIONS)
def test_a_call_that_raises_leaves_the_block(strategy: str) -> None:
    eager = Raises()
    lowered = aten_recompute.lower(scripted_copy(eager), strategy, **OPTIONS[strategy])
    x = torch.randn(4, 8)
    for _ in range(2):
        assert lowered(x, 100.0).dtype == torch.bfloat16
        with pytest.raises(Exception, match="too large"):
            lowered(x, -100.0)
        assert not torch.is_autocast_enabled("cpu")
        assert torch.equal(lowered(x, 100.0), eager(x, 100.0))


@pytest.mark.parametrize("around", AROUND)
def test_calls_without_gradients(around: str) -> None:
    eager = Nested()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(4, 8)
    with torch.no_grad(), AROUND[around]():
        assert torch.equal(lowered(x), eager(x))
    assert_same(step(lowered, x, AROUND[around], 0), step(eager, x, AROUND[around], 0))


@pytest.mark.parametrize("kind", [On, Nested])
def test_weights_that_change_between_calls_are_cast_again(kind: type[nn.Module]) -> None:
    """What autocast keeps of a weight goes where the outermost block ends."""
    eager = kind()
    lowered = aten_recompute.lower(scripted_copy(eager), "none")
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(3):
            assert_same([lowered(x)], [eager(x)])
            for module in (eager, lowered):
                for parameter in module.parameters():
                    parameter.mul_(1.5)


def test_second_derivatives_through_blocks() -> None:
    torch.manual_seed(0)
    eager = TwoBlocks()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")

    def second(module: nn.Module) -> list[Tensor]:
        x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
        (first,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [x, *module.a.parameters()]))

    for ours, theirs in zip(second(lowered), second(eager), strict=True):
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for layer in self.layers:
                x = torch.tanh(layer(x)) + torch.sigmoid(x)
        return x.float().square().sum()


def test_budgets_are_kept(tracker: Tracker) -> None:
    torch.manual_seed(0)
    lowered = aten_recompute.lower(scripted_copy(Deep()), "budget", memory_budget=0.5)
    x = torch.randn(512, 64)

    def train() -> None:
        lowered.zero_grad(set_to_none=True)
        lowered(x).backward()

    for _ in range(3):
        train()
    lowered.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        train()
    (region,) = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]
    variant = region["variants"][-1]
    assert peak.bytes <= 0.5 * variant["unplanned_peak_bytes"]
    assert abs(peak.bytes - variant["predicted_peak_bytes"]) <= 0.03 * variant["predicted_peak_bytes"]
