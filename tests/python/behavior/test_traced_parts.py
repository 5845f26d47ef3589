"""Traced modules, alone or inside of scripted ones, can be called with shapes and ranks other than the traced ones."""

import copy
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.eager_comparison import Case, check, every
from support.helpers import assert_same


class Chunked(nn.Module):
    """A gated unit, split along a dimension that is counted from the end."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.linear(x).chunk(2, dim=self.dim)
        return a * nn.functional.gelu(b)


class Split(Chunked):
    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.linear(x).split([4, 4, 8], dim=self.dim)
        return torch.cat([a * b, c], dim=self.dim).flip(self.dim)


class Added(nn.Module):
    """Has a parameter that is broadcast to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.randn(1, 8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(x) + self.offset, -1)


class Product(nn.Module):
    """Uses double precision: on some processors TorchScript's batched product differs from eager in the last bit."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 8, 8, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x.unsqueeze(-2), self.weight).squeeze(-2) * x.sum(0, keepdim=True)


class Normed(nn.Module):
    """Has a batch norm, whose count of batches a trace increments differently from a script."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Constants(nn.Module):
    """Has constants of the trace, new tensors and sizes of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * torch.arange(8.0) / x.size(-1)
        z = torch.zeros_like(y)
        z[..., 1:] = y[..., :-1]
        return torch.tanh(y + z).view(x.size(0), -1)


class Holder(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.outer = nn.Linear(8, 8, dtype=next(inner.parameters()).dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.outer(x)) + 1


def held(make: Callable[[], nn.Module]) -> nn.Module:
    return Holder(make())


def traced(*shape: int) -> Callable[[nn.Module], torch.jit.ScriptModule]:
    """Returns a function that traces a module and restores its buffers."""

    def script(module: nn.Module) -> torch.jit.ScriptModule:
        state = {name: buffer.clone() for name, buffer in module.named_buffers()}
        example = torch.ones(shape, dtype=next(module.parameters()).dtype)
        result = torch.jit.trace(module, example, check_trace=False)
        for name, buffer in module.named_buffers():
            buffer.copy_(state[name])
        return result

    return script


def traced_inside(*shape: int) -> Callable[[nn.Module], torch.jit.ScriptModule]:
    """Returns a function that scripts a module after tracing its part ``inner``."""

    def script(module: Any) -> torch.jit.ScriptModule:
        module.inner = traced(*shape)(module.inner)
        return torch.jit.script(module)

    return script


Shapes = tuple[tuple[int, ...], ...]


def trained(*shapes: tuple[int, ...]) -> Callable[[nn.Module], Any]:
    def use(module: nn.Module) -> Any:
        found = []
        for shape in shapes:
            x = torch.randn(shape, dtype=next(module.parameters()).dtype, requires_grad=True)
            y = module(x)
            y.square().sum().backward()
            found.append([y, x.grad])
        return found

    return use


_ALIKE: Shapes = ((4, 8), (6, 8), (2, 8))
_RANKS: Shapes = ((4, 8), (3, 4, 8), (8,), (2, 3, 4, 8))

CASES = [
    Case(f"{name}_{where}{'_ranks' if shapes is _RANKS else ''}", make if where == "alone" else partial(held, make),
         trained(*shapes), script=(traced if where == "alone" else traced_inside)(4, 8))
    for where in ("alone", "inside")
    for name, make, choices in (
        ("chunk_last", Chunked, (_ALIKE, _RANKS)),
        ("split_last", Split, (_ALIKE, _RANKS)),
        ("added", Added, (_ALIKE, _RANKS)),
        ("product", Product, (_ALIKE, _RANKS)),
        ("normed", Normed, (_ALIKE,)),
        ("constants", Constants, (_ALIKE,)),
    )
    for shapes in choices
]  # fmt: skip


@every(CASES)
def test_traced_modules_equal_eager_for_other_shapes(case: Case, strategy: str) -> None:
    check(case, strategy)


class Activated(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), activation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Sharing(nn.Module):
    """Both blocks hold one activation. A trace gives it to the first of them as an argument."""

    def __init__(self) -> None:
        super().__init__()
        activation = nn.SiLU()
        self.first = Activated(activation)
        self.second = Activated(activation)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x))
        return out


@pytest.mark.parametrize("load", [torch.jit.load, aten_recompute.load], ids=["torch", "aten_recompute"])
def test_a_trace_with_a_shared_module_can_be_saved(load: Callable[[Any], Any], tmp_path: Path) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    traced = torch.jit.trace(Sharing(), x)
    lowered = aten_recompute.lower(traced, "all")
    torch.jit.save(lowered, tmp_path / "lowered.pt")
    plain = aten_recompute.unlower(lowered)
    torch.jit.save(plain, tmp_path / "plain.pt")
    expected = step_of(traced, x)
    for each in (lowered, plain, load(tmp_path / "lowered.pt"), load(tmp_path / "plain.pt")):
        assert_same(step_of(each, x), expected)


def step_of(module: Any, x: Tensor) -> list[Tensor]:
    y = module(x)
    return [y.detach(), *torch.autograd.grad(y.sum(), [x, *module.parameters()])]


class ScaledLosses(nn.Module):
    """Numbers beside results of no dimensions, of whose type they have no part."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("factor", torch.tensor(0.25, dtype=torch.float64))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.linear(x)
        loss = y.square().mean()
        count = (y > 0).sum()
        return (
            loss * 0.3,
            loss / 3,
            loss + 0.1,
            loss - 2,
            y * 0.3,
            count * 2,
            count + 0.5,
            count / 3,
            loss * self.factor,
        )


@pytest.mark.parametrize("strategy", ["none", "min_cut"])
@pytest.mark.parametrize("how", ["saved", "cloned"])
def test_numbers_of_a_saved_trace_do_not_decide_types(how: str, strategy: str) -> None:
    torch.manual_seed(0)
    eager, x = ScaledLosses(), torch.randn(4, 8)
    traced = torch.jit.trace(copy.deepcopy(eager), x)
    if how == "cloned":
        traced = aten_recompute.clone(traced)
    else:
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer)
        buffer.seek(0)
        traced = torch.jit.load(buffer)
    lowered = aten_recompute.lower(traced, strategy)
    for _ in range(2):
        for found, expected in zip(lowered(x), eager(x), strict=True):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)
    for module in (lowered, eager):
        module.zero_grad()
        sum(result.sum() for result in module(x)).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
