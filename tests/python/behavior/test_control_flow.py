"""Methods may have branches, loops, state, assertions, in-place writes and autocast blocks."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.eager_comparison import Case, check, every
from support.helpers import assert_same, lowered_copy


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)


class Autocast(Base):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.first(x)
        return self.second(y.float())


class AutocastLast(Base):
    """The result has the lower precision."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.second(y)
        return y


class AutocastInside(Base):
    """Autocast is switched off for a part that needs full precision."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.first(x)
            with torch.autocast("cpu", enabled=False):
                z = self.second(y.float())
        return z + y.float()


class AutocastOff(Base):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y = self.first(x.float())
        return self.second(y)


class AppendsToAttribute(Base):
    """Each call appends to an attribute once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = [0]

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(x.size(0))
        return self.second(torch.tanh(self.first(x))) * float(len(self.sizes))


class CountsInDict(Base):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {"calls": 0}

    def forward(self, x: Tensor) -> Tensor:
        self.seen["calls"] += 1
        return self.second(torch.tanh(self.first(x))) * float(self.seen["calls"])


class CountsInAttribute(Base):
    def __init__(self) -> None:
        super().__init__()
        self.calls: int = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = torch.tanh(self.first(x))
        if self.calls % 2 == 0:
            y = y * 2
        return self.second(y)


class KeepsTensors(Base):
    """Keeps results of earlier calls in a list, as memory banks do."""

    def __init__(self) -> None:
        super().__init__()
        self.bank: list[Tensor] = [torch.ones(8)]

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        self.bank.append(y.detach().mean(0))
        return self.second(y) * torch.stack(self.bank).sum(0)


class MovingAverage(Base):
    """Each call replaces one buffer and writes to another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        self.total.add_(y.detach().sum(0))
        return self.second(y - self.mean) * (1 + self.total.abs())


class AssertsOnData(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        assert bool(torch.isfinite(y).all()), "not finite"
        assert bool((y != 0).any()), "all zero"
        return self.second(torch.tanh(y))


class RaisesOnData(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if bool(y.abs().sum() == 0):
            raise RuntimeError("all zero")
        return self.second(torch.tanh(y))


class AssertFails(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        assert bool((y > 100).all()), "too small"
        return self.second(torch.tanh(y))


class RaiseHappens(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.second(torch.tanh(self.first(x)))
        if bool(y.sum() < 1e9):
            raise ValueError("too small")
        return y


class CopiesIntoEmpty(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = torch.empty_like(y)
        z.copy_(y)
        return self.second(z * 2)


class CopiesHalves(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = torch.empty(y.size(0), 8)
        z[:, :4].copy_(y[:, 4:])
        z[:, 4:] = y[:, :4] * 2
        return self.second(z)


class WritesSlices(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, 1:3] = self.first(x)[:, :2]
        y[0] = 1.0
        y[1:, 4:] += self.second(x)[1:, 4:]
        return y * 2


class WritesIndices(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).clone()
        y[torch.tensor([0, 2])] = self.second(x)[:2]
        y[y > 1] = 0.5
        y.index_add_(0, torch.tensor([1, 1]), x[:2] * 3)
        return y.index_fill(1, torch.tensor([3]), 2.0)


class Triangular(Base):
    """Computes each column from the earlier ones, as the inverse of a flow does."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for i in range(4):
            y[:, i] = torch.tanh(self.first(y.clone())[:, i]) + x[:, i]
        return y


class Factories(Base):
    """Makes tensors without a dtype and writes to them."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        total = torch.zeros(y.size(0), 8)
        total += y
        scale = torch.ones(8)
        scale *= y.mean(0)
        offset = torch.full([8], 0.5)
        offset.add_(y.sum(0))
        ramp = torch.linspace(0, 1, 8)
        ramp -= y[0]
        random = torch.rand(y.size(0), 8)
        random *= y
        new = y.new_zeros(y.size(0), 8)
        new += y * 2
        return self.second(total * scale + offset + ramp + random + new).to(total.dtype)


class AccumulatesLoss(Base):
    def forward(self, x: Tensor) -> Tensor:
        loss = torch.zeros(())
        for layer in [self.first.weight, self.second.weight]:
            x = torch.tanh(x @ layer)
            loss += x.square().mean()
        penalty = torch.tensor(0.0)
        penalty += self.first.bias.abs().sum()
        return loss + penalty


class WhileLoop(Base):
    """Repeats until the norm is small enough, at most ten times."""

    def forward(self, x: Tensor) -> Tensor:
        count = 0
        while count < 10 and bool(x.norm() > 0.5):
            x = torch.tanh(self.first(x)) * 0.7
            count += 1
        return self.second(x) * float(count)


class LoopWithBreak(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(6):
            y = torch.sigmoid(self.first(y))
            if bool(y.mean() > 0.55):
                continue
            y = y * 2
            if i == 3:
                break
        return self.second(y)


class EarlyReturn(Base):
    def inner(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        if x.size(0) > 100:
            return y * 2
        if bool(y.sum() > 0):
            return self.second(y)
        return self.second(y * 3) - 1

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x))


class BranchesOnData(Base):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if bool(y.mean() > 0):
            y = torch.relu(y)
        else:
            y = self.second(torch.sigmoid(y))
        return self.second(y)


class Optionals(Base):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.first(x)
        if mask is not None:
            y = y * mask
        last: Tensor | None = None
        for i in range(2):
            last = torch.tanh(y) if last is None else last + self.second(last)
        assert last is not None
        return last


class LocalContainers(Base):
    def forward(self, x: Tensor) -> Tensor:
        found: dict[str, Tensor] = {}
        every: list[tuple[str, Tensor]] = []
        for name in ["a", "b", "c"]:
            x = torch.tanh(self.first(x))
            found[name] = x
            every.append((name, x * 2))
        found["a"] = found.pop("b") + 1
        return self.second(found["a"] * found["c"]) + every[-1][1] + every[0][1]


def trained(dtype: torch.dtype = torch.float32, rows: int = 4) -> Callable[[nn.Module], Any]:
    def use(module: nn.Module) -> Any:
        x = torch.randn(rows, 8, dtype=dtype, requires_grad=True)
        y = module(x)
        y.float().square().sum().backward()
        return y, x.grad

    return use


def under_autocast(module: nn.Module) -> Any:
    x = torch.randn(4, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
    y.float().square().sum().backward()
    return y, x.grad


IGNORED = "TorchScript ignores torch.autocast(enabled=False) if the caller has switched autocast on"
ROUNDED = "TorchScript inserts the casts of nested autocast blocks itself, and rounds at other places"

CASES = [
    *(Case(make.__name__, make, trained()) for make in (
        Autocast, AutocastLast, AutocastOff, AppendsToAttribute, CountsInDict, CountsInAttribute, KeepsTensors,
        MovingAverage, AssertsOnData, RaisesOnData, CopiesIntoEmpty, CopiesHalves, WritesSlices, WritesIndices,
        Triangular, Factories, AccumulatesLoss, WhileLoop, LoopWithBreak, EarlyReturn, BranchesOnData, Optionals,
        LocalContainers,
    )),
    Case("AutocastInside", AutocastInside, trained(), stock=ROUNDED),
    Case("AssertFails", AssertFails, trained(), error="too small"),
    Case("RaiseHappens", RaiseHappens, trained(), error="too small"),
    Case("called_under_autocast", Autocast, under_autocast),
    Case("off_under_autocast", AutocastOff, under_autocast, stock=IGNORED),
]  # fmt: skip


@every(CASES)
def test_methods_with_control_flow_and_state_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)


class HandsOnWhatItWasGiven(Base):
    """SevenNet's layers put tensors of the caller's dict into it under other names, too."""

    def forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
        x = data["x"]
        data["features"] = x
        data["first"] = x[0]
        if x.size(0) > 3:
            x = torch.tanh(self.first(x))
        data["y"] = self.second(x)
        return data


def test_tensors_of_the_caller_are_put_into_its_dict() -> None:
    torch.manual_seed(0)
    module = HandsOnWhatItWasGiven()
    lowered = lowered_copy(module, "none")
    for rows in (4, 2, 4):
        x = torch.randn(rows, 8)
        results = []
        for each in (module, lowered):
            each.zero_grad()
            own = x.clone().requires_grad_()
            returned = each({"x": own})
            assert sorted(returned) == ["features", "first", "x", "y"]
            assert returned["features"].data_ptr() == own.data_ptr()
            returned["y"].square().sum().backward()
            results.append([returned["y"].detach(), returned["first"].detach(), own.grad])
        assert_same(results[1], results[0])
    (method,) = aten_recompute.report(lowered)["methods"]
    assert [specialization["breaks"] for specialization in method["specialisations"]] == [[], []]


class Offsets(nn.Module):
    """Counts into a part of a tensor that it made, as torch_geometric.utils.cumsum() does."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).relu()
        counts = (x[:, 0] > 0).to(self.dtype)
        offsets = counts.new_empty(counts.numel() + 1)
        offsets[:1] = 0
        torch.cumsum(counts, 0, out=offsets[1:])
        return (self.linear(y) * offsets[1:, None]).sum()


@pytest.mark.parametrize("make", [torch.jit.script, lambda module: torch.jit.trace(module, torch.randn(6, 8))])
@pytest.mark.parametrize(("dtype", "regions"), [(torch.int64, 1), (torch.int32, 2), (torch.float32, 2)])
def test_a_result_that_is_written_to_a_part_of_a_tensor(make: Any, dtype: torch.dtype, regions: int) -> None:
    torch.manual_seed(0)
    eager = Offsets(dtype)
    lowered = aten_recompute.lower(make(copy.deepcopy(eager)), "min_cut")
    for rows in (6, 9, 1):
        x = torch.randn(rows, 8)
        for module in (eager, lowered):
            module.zero_grad(set_to_none=True)
            module(x).backward()
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    for specialization in aten_recompute.report(lowered)["methods"][0]["specialisations"]:
        assert len(specialization["regions"]) == regions


class CountsInIntegers(nn.Module):
    """Sums numbers in the type of the target, which is that of an index."""

    def forward(self, x: Tensor) -> Tensor:
        offsets = torch.zeros(4, dtype=torch.int64)
        torch.cumsum(x, 0, out=offsets[1:])
        return x.sum() + offsets.sum()


class NumbersBesideBooleans(nn.Module):
    """What has another type beside a number, which leaves its value as it is."""

    def forward(self, x: Tensor) -> Tensor:
        positive = x > 0
        ones, zeros = (positive * 1).fill_(3), (positive + 0).add_(3)
        halves = (positive / 1).mul_(0.5)
        return (ones * x).sum() + zeros.sum() + halves.sum() + (1 - (positive * 1)).sum()


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda module: torch.jit.trace(module, torch.full((3,), 0.7), check_trace=False)]
)
@pytest.mark.parametrize("network", [CountsInIntegers, NumbersBesideBooleans])
def test_types_of_results_are_those_of_eager(make: Any, network: Callable[[], nn.Module]) -> None:
    x = torch.tensor([0.7, 0.7, 0.7])
    lowered = aten_recompute.lower(make(network()), "none")
    for _ in range(2):
        assert torch.equal(lowered(x), network()(x))


class SparseProduct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        matrix = torch.sparse_coo_tensor(index, torch.ones(3), [3, 3])
        y = self.linear(torch.mm(matrix, x))
        for _ in range(int(index.max())):
            y = y + 1
        return y


def test_a_sparse_tensor_under_a_budget_in_bytes() -> None:
    eager = SparseProduct()
    lowered = lowered_copy(eager, "budget", memory_budget="200MiB")
    x, index = torch.randn(3, 4), torch.tensor([[0, 1, 2], [1, 2, 0]])
    for _ in range(2):
        assert torch.equal(lowered(x, index), eager(x, index))
