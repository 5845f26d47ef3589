"""Programs with control flow and containers train as in eager, in one region for each path that a call takes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, tensors_in
from support.path_programs import PROGRAMS

# In these, a branch may become one operator, which has no rule.
DECIDED_BY_DATA = {
    "branches_on_data", "break_and_continue", "operand_twice_behind_data", "return_in_a_loop", "flag_that_ends_a_loop",
}  # fmt: skip


def copied(value: Any) -> Any:
    """Returns the value with each tensor of floating point as a leaf of its own that requires grad."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.is_floating_point())
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(each) for each in value)
    return value


def trained(module: nn.Module, call: tuple[Any, ...], seed: int) -> list[Tensor | None]:
    inputs = copied(call)
    leaves = tensors_in(inputs)
    module.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    outputs = [output for output in tensors_in(module(*inputs)) if output.requires_grad]
    losses = [(output * torch.linspace(0, 1, output.numel()).view_as(output)).sum() for output in outputs]
    torch.stack(losses).sum().backward()
    return [
        *(output.detach() for output in outputs),
        *(leaf.grad for leaf in leaves),
        *(parameter.grad for parameter in module.parameters()),
        *(buffer.clone() for buffer in module.buffers()),
        torch.get_rng_state(),
    ]


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_path_of_a_program_equals_eager(name: str, strategy: str) -> None:
    make, calls = PROGRAMS[name]
    eager = make()
    lowered = lowered_copy(eager, strategy)
    for seed, call in enumerate(calls()):
        assert_same(trained(lowered, call, seed), trained(eager, call, seed))
    for specialization in aten_recompute.report(lowered)["methods"][0]["specialisations"]:
        assert len(specialization["regions"]) == 1
        assert specialization["breaks"] == []
        on_tape = {op for variant in specialization["regions"][0]["variants"] for op in variant["on_tape"]}
        assert on_tape in ([{"aten_recompute::branch"}, set()] if name in DECIDED_BY_DATA else [set()])


def num_specializations(lowered: torch.jit.ScriptModule) -> int:
    return len(aten_recompute.report(lowered)["methods"][0]["specialisations"])


def test_sizes_share_a_path() -> None:
    make, _ = PROGRAMS["early_return"]
    eager = make()
    lowered = lowered_copy(eager, "segments")
    for size in range(1, 40):
        call = (torch.randn(size, 8),)
        assert_same(trained(lowered, call, size), trained(eager, call, size))
    assert num_specializations(lowered) == 2


class ManyPaths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(9)])
        self.seen: list[int] = [0]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = torch.tanh(layer(x))
            if bool(y.sum() > 0):
                x = y * 2
                self.seen.append(1)
            else:
                x = y - 1
        return x


def test_a_program_of_too_many_paths_keeps_its_control_flow() -> None:
    eager = ManyPaths()
    lowered = lowered_copy(eager, "none")
    for seed in range(60):
        call = (torch.randn(4, 8),)
        assert_same(trained(lowered, call, seed), trained(eager, call, seed))
    assert num_specializations(lowered) == 1


class RaisesAfterChanges(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.calls: int = 0
        self.seen: list[int] = [0]
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        self.calls += 1
        self.count.add_(1)
        self.seen.append(x.size(0))
        y = torch.tanh(self.layer(x))
        if x.size(0) > 100:
            y = y * 2
        y = y + other
        self.calls += 10
        return y


@pytest.mark.parametrize("strategy", ["none", "segments"])
def test_what_comes_before_an_error_has_happened(strategy: str) -> None:
    eager = RaisesAfterChanges()
    lowered = lowered_copy(eager, strategy)
    fits, does_not = torch.randn(4, 8), torch.randn(3, 8)
    for module in (eager, lowered):
        module(fits, fits).sum().backward()
        with pytest.raises(RuntimeError, match="must match the size"):
            module(fits, does_not)
        module(fits, fits).sum().backward()
    for name in ("calls", "seen", "count"):
        assert getattr(lowered, name) == getattr(eager, name)


class MakesItsInputRequireGrad(nn.Module):
    """As models of forces do, whether or not they compute forces in this call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, data: dict[str, Tensor], forces: bool = False) -> dict[str, Tensor | None]:
        data["positions"].requires_grad_(True)
        energy = self.second(torch.tanh(self.first(data["positions"]))).sum()
        gradient: Tensor | None = None
        if forces:
            gradient = torch.autograd.grad([energy], [data["positions"]])[0]
        return {"energy": energy, "forces": gradient}


def test_an_input_may_be_made_to_require_grad() -> None:
    eager = MakesItsInputRequireGrad()
    lowered = lowered_copy(eager, "segments")
    for _ in range(3):
        positions = [torch.randn(4, 3)] * 2
        positions = [each.clone() for each in positions]
        for module, x in zip((eager, lowered), positions, strict=True):
            module.zero_grad()
            module({"positions": x})["energy"].backward()
            assert x.requires_grad
        assert_same([x.grad for x in positions[1:]], [x.grad for x in positions[:1]])
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert len(specialization["regions"]) == 1


class NormsBehindData(nn.Module):
    """Leaves the path of an earlier call after a norm has updated its statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.a(x))
        for i in range(2):
            if bool(y.sum() > 0.5 * i):
                return y * 2
            y = self.norm(self.b(y))
        return y


def test_a_call_that_leaves_its_path_does_not_disturb_the_backward_of_earlier_ones() -> None:
    """Statistics are restored before the call is made again, without a change that autograd would notice."""
    eager = NormsBehindData()
    lowered = lowered_copy(eager, "none")
    inputs = [torch.randn(3, 4) for _ in range(8)]
    for module in (eager, lowered):
        torch.stack([module(x).sum() for x in inputs]).sum().backward()
    assert num_specializations(lowered) > 1
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
    assert_same(list(lowered.buffers()), list(eager.buffers()))


class CopiesIntoItsOwn(nn.Module):
    """Writes an input into a tensor of its own; the path depends on data."""

    def forward(self, a: Tensor, c: Tensor) -> Tensor:
        own = torch.rand(4, 3)
        own.copy_(c)
        copied = own.to(c.dtype) * 1.0
        x = a * 0.5
        rounds = 0
        while rounds < 2:
            rounds += 1
            if bool(x.max() > 1.0):
                break
            x = torch.relu(a) * 0.5 + x * 0.25
        return copied + x.sum()


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
def test_a_call_that_leaves_its_path_in_the_first_run_of_a_region_has_gradients(strategy: str) -> None:
    """The region cannot be profiled on these inputs, as its check raises, and runs under ordinary autograd."""
    lowered = lowered_copy(CopiesIntoItsOwn(), strategy)
    for value in (3.0, 0.1, 3.0, 0.1):
        a = torch.full((3, 4), value, dtype=torch.float64)
        c = torch.rand(4, 3, dtype=torch.float64)
        ours, theirs = c.clone().requires_grad_(), c.clone().requires_grad_()
        expected = CopiesIntoItsOwn()(a, theirs)
        output = lowered(a, ours)
        assert torch.equal(output, expected)
        output.square().sum().backward()
        expected.square().sum().backward()
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)


class LoopsOverRows(nn.Module):
    """Loops whose lengths follow from the size of a tensor that the method computes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 3)

    def forward(self, tokens: Tensor, stride: int) -> Tensor:
        rows = self.embedding(tokens)
        total = torch.zeros(3)
        for i in range(rows.size(0)):
            if i * stride > 4:
                break
            total = torch.tanh(total + rows[i])
        for row in rows:
            total = total * row
        i = 0
        while i < rows.size(0) - 1:
            total = total + rows[i + 1]
            i += 1
        for _ in range(rows.size(1)):
            for k in range(rows.size(0)):
                written = rows.clone()
                written[k] = written[k] * 2
                total = total + written.sum()
        return total


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_shorter_call_leaves_a_path_before_it_takes_an_element_that_it_lacks(strategy: str) -> None:
    module = LoopsOverRows()
    lowered = lowered_copy(module, strategy)
    for length, stride in [(2, 1), (6, 1), (2, 1), (6, 2), (4, 0), (1, 3), (8, 2), (3, 1)]:
        call = (torch.arange(length), stride)
        assert_same(trained(lowered, call, 0), trained(module, call, 0))
    (method,) = aten_recompute.report(lowered)["methods"]
    assert method["unplanned_calls"] == []


class LoopsOverKeptRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = (x * self.weight)[mask]
        total = torch.zeros(3)
        for row in rows:
            total = torch.tanh(total + row)
        return total


def test_a_call_finds_the_path_of_an_earlier_one_with_as_many_iterations() -> None:
    module = LoopsOverKeptRows()
    lowered = lowered_copy(module, "none")
    x = torch.randn(6, 3)
    for kept in [2, 4, 3] * 20:
        call = (x, torch.arange(6) < kept)
        assert_same(trained(lowered, call, 0), trained(module, call, 0))
    (method,) = aten_recompute.report(lowered)["methods"]
    assert (len(method["specialisations"]), method["unplanned_calls"]) == (3, [])
