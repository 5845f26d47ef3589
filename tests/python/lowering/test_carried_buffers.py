"""Buffers that a method writes to and reads afterward are values of its region, and are written back at its end."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from support.helpers import assert_same, lowered_copy, num_regions, saved_and_loaded, tensors_in

pytestmark = pytest.mark.usefixtures("one_thread")


class Average(nn.Module):
    """Scales by a running average that it has just updated."""

    m: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("m", torch.ones(6))

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        if self.training:
            self.m.mul_(0.9).add_(h.detach().mean(0) * 0.1)
        return torch.relu(h * self.m) * self.m.sum()


class AverageWithoutGrad(Average):
    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        with torch.no_grad():
            mean = h.mean(0)
            mean.mul_(0.1)
            self.m.mul_(0.9).add_(mean)
        return torch.relu(h * self.m) + mean


class NormTwice(nn.Module):
    """Both calls count batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6, momentum=None)

    def forward(self, x: Tensor) -> Any:
        h = torch.relu(self.norm(self.layer(x)))
        return self.norm(self.layer(h)) + h


class PowerIteration(nn.Module):
    """The spectral norm of torch.nn.utils, written out."""

    u: Tensor
    v: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.register_buffer("u", F.normalize(torch.randn(6), dim=0))
        self.register_buffer("v", F.normalize(torch.randn(6), dim=0))

    def forward(self, x: Tensor) -> Any:
        h = torch.sigmoid(x @ self.weight)
        if self.training:
            with torch.no_grad():
                for _ in range(2):
                    self.v.copy_(F.normalize(torch.mv(self.weight.t(), self.u), dim=0))
                    self.u.copy_(F.normalize(torch.mv(self.weight, self.v), dim=0))
        sigma = torch.dot(self.u, torch.mv(self.weight, self.v))
        return F.linear(h, self.weight / sigma)


class Codebook(nn.Module):
    """A vector quantizer with averages as codes; a row of a buffer is written as well."""

    codes: Tensor
    counts: Tensor
    used: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("codes", torch.randn(4, 6))
        self.register_buffer("counts", torch.ones(4))
        self.register_buffer("used", torch.zeros(3, 4, dtype=torch.long))

    def forward(self, x: Tensor) -> Any:
        h = self.layer(x)
        with torch.no_grad():
            chosen = torch.cdist(h, self.codes).argmin(1)
            hot = F.one_hot(chosen, 4).to(h.dtype)
            self.counts.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.codes.mul_(0.9).add_(hot.t() @ h, alpha=0.1)
            self.codes[0] *= 0.99
            self.used[0] = self.used[1] + 1
            self.used[1, 1:3].add_(2)
        code = (self.codes / self.counts.unsqueeze(1))[chosen]
        used = self.used.sum().to(h.dtype)
        return h + (code - h).detach() + (h - code).square().mean() + used, chosen


class ReturnsBuffer(Average):
    """Its results are the buffer, a view of it, and a list with it."""

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        row = self.m[2:]
        self.m.add_(h.detach().mean(0))
        y = torch.relu(h) + self.m
        self.m.mul_(0.5)
        return y, self.m, row, [self.m, self.m.view(2, 3)]


class Raises(Average):
    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        self.m.mul_(0.5)
        y = torch.relu(h) + self.m
        assert bool(x.sum() > 0), "the sum is too small"
        self.m.add_(1)
        return torch.relu(y) * self.m


class ReadsBefore(Average):
    """Eager refuses the backward, which needs what the buffer held before the write."""

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        y = h * self.m
        self.m.mul_(0.9)
        return torch.sigmoid(y) + self.m


class TwoNames(Average):
    other: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("other", torch.zeros(6))

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.layer(x))
        self.m.mul_(0.9).add_(h.detach().mean(0))
        return torch.relu(h * self.m) + self.other


class TakesBuffer(Average):
    def forward(self, x: Tensor, other: Tensor | None = None) -> Any:
        h = torch.tanh(self.layer(x))
        self.m.mul_(0.9).add_(h.detach().mean(0))
        y = torch.relu(h * self.m)
        return y if other is None else y + other


ONE_REGION: list[Callable[[], nn.Module]] = [
    Average, AverageWithoutGrad, NormTwice, PowerIteration, Codebook, ReturnsBuffer,
]  # fmt: skip


def trained(module: nn.Module, *inputs: Any) -> list[Tensor | None]:
    """Returns results, gradients and buffers, and which results require grad and lie in the memory of which buffer."""
    module.zero_grad(set_to_none=True)
    x = inputs[0].clone().requires_grad_()
    results = tensors_in(module(x, *inputs[1:]))
    losses = [(r * torch.linspace(0, 1, r.numel()).view_as(r)).sum() for r in results if r.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()
    places = {buffer.untyped_storage().data_ptr(): i for i, buffer in enumerate(module.buffers())}
    facts = [[float(r.requires_grad), places.get(r.untyped_storage().data_ptr(), -1)] for r in results]
    values = [*results, x.grad, *(p.grad for p in module.parameters()), *module.buffers()]
    return [torch.tensor(facts), *(None if value is None else value.detach().clone() for value in values)]


def inputs(seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(rows, 6) + 0.5 for rows in (4, 4, 7, 4)]


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "none"},
        {"strategy": "all"},
        {"strategy": "min_cut"},
        {"strategy": "budget", "memory_budget": 0.8, "unreachable": "leanest"},
        {"strategy": "none", "exact": False, "fuse": False},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("make", ONE_REGION)
def test_the_method_is_one_region_and_equals_eager(make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    eager = make()
    lowered: Any = lowered_copy(eager, options)
    addresses = [buffer.data_ptr() for buffer in lowered.buffers()]
    for module, reference in ((lowered, eager), (saved_and_loaded(lowered), copy.deepcopy(eager))):
        for x in inputs():
            assert_same(trained(module, x), trained(reference, x))
            with torch.no_grad():
                assert_same(tensors_in(module(x)), tensors_in(reference(x)))
            module.eval()
            reference.eval()
            assert_same(trained(module, x), trained(reference, x))
            module.train()
            reference.train()
        assert set(num_regions(module)) == {1}
        breaks = [each["breaks"] for each in aten_recompute.report(module)["methods"][0]["specialisations"]]
        assert not any(breaks)
    assert [buffer.data_ptr() for buffer in lowered.buffers()] == addresses


def test_a_buffer_that_the_caller_holds_has_eagers_values_and_is_noticed_as_changed() -> None:
    eager = Average()
    lowered: Any = lowered_copy(eager, "none")
    versions = []
    for module in (eager, lowered):
        held, part = module.m, module.m[2:4]
        leaf = torch.ones(6, requires_grad=True)
        product = leaf * held
        version = held._version
        module(inputs()[0])
        assert torch.equal(held, module.m)
        assert torch.equal(part, module.m[2:4])
        versions.append(held._version - version)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
    assert torch.equal(eager.m, lowered.m)
    assert versions == [2, 2]


def test_two_forwards_before_one_backward() -> None:
    """Eager refuses it, as the second forward changes what the first one's backward reads."""
    eager = Average().double()
    lowered: Any = lowered_copy(eager, "none")
    x, y, *_ = (each.double() for each in inputs())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (eager(x).sum() + eager(y).sum()).backward()
    (lowered(x).sum() + lowered(y).sum()).backward()
    assert torch.equal(lowered.m, eager.m)

    # What eager computes where each forward reads a copy.
    reference = Average().double()
    reference.load_state_dict(lowered.state_dict())
    reference.m.fill_(1)
    total = torch.zeros((), dtype=torch.float64)
    for each in (x, y):
        h = torch.tanh(reference.layer(each))
        reference.m.mul_(0.9).add_(h.detach().mean(0) * 0.1)
        m = reference.m.clone()
        total = total + (torch.relu(h * m) * m.sum()).sum()
    total.backward()
    torch.testing.assert_close([p.grad for p in lowered.parameters()], [p.grad for p in reference.parameters()])


def test_a_backward_reads_what_the_buffer_held_when_the_forward_read_it() -> None:
    """Eager refuses it, as it kept the buffer itself; one that keeps a copy shows the gradients."""
    eager, reference = ReadsBefore(), ReadsBefore()
    reference.load_state_dict(eager.state_dict())
    lowered: Any = lowered_copy(eager, "none")
    for x in inputs():
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            eager(x).sum().backward()
        before = reference.m.clone()
        reference.m.mul_(0.9)
        reference.zero_grad()
        h = torch.tanh(reference.layer(x))
        (torch.sigmoid(h * before) + reference.m).sum().backward()
        lowered.zero_grad()
        lowered(x).sum().backward()
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in reference.parameters()])
        assert torch.equal(lowered.m, eager.m)


def test_what_was_written_before_an_error_stays() -> None:
    eager = Raises()
    lowered: Any = lowered_copy(eager, "none")
    good, bad = inputs()[0].abs(), -inputs()[0].abs()
    for x in (good, bad, good, bad, bad, good):
        if x is bad:
            for module in (eager, lowered):
                with pytest.raises((AssertionError, torch.jit.Error), match="the sum is too small"):
                    module(x)
            assert torch.equal(eager.m, lowered.m)
        else:
            assert_same(trained(lowered, x), trained(eager, x))


def test_buffers_that_share_memory() -> None:
    eager = TwoNames()
    lowered: Any = lowered_copy(eager, "none")
    x, *others = inputs()
    assert_same(trained(lowered, x), trained(eager, x))
    for module in (eager, lowered):
        module.other = module.m  # one tensor with two names
    for each in others:
        assert_same(trained(lowered, each), trained(eager, each))
    for module in (eager, lowered):
        module.other = module.m.view(2, 3).view(6)
    for each in others:
        assert_same(trained(lowered, each), trained(eager, each))
    for module in (eager, lowered):
        module.other = module.m.clone()
    assert_same(trained(lowered, x), trained(eager, x))


def test_the_buffer_as_an_input() -> None:
    eager = TakesBuffer()
    lowered: Any = lowered_copy(eager, "none")
    x, *others = inputs()
    assert_same(trained(lowered, x, torch.ones(6)), trained(eager, x, torch.ones(6)))
    for each in others:
        for module in (eager, lowered):
            module.zero_grad()
        assert_same(trained(lowered, each, lowered.m), trained(eager, each, eager.m))
        assert_same(trained(lowered, each, lowered.m[:1]), trained(eager, each, eager.m[:1]))
        assert_same(trained(lowered, each), trained(eager, each))


def test_second_derivatives() -> None:
    eager = AverageWithoutGrad().double()
    lowered: Any = lowered_copy(eager, "none")
    for x in inputs():
        found = []
        for module in (lowered, eager):
            leaf = x.double().requires_grad_()
            (gradient,) = torch.autograd.grad(module(leaf).square().sum(), leaf, create_graph=True)
            found.append(torch.autograd.grad(gradient.square().sum(), leaf)[0])
        torch.testing.assert_close(*found)


def test_a_buffer_that_is_replaced_between_calls() -> None:
    eager = Average()
    lowered: Any = lowered_copy(eager, "none")
    for x in inputs():
        assert_same(trained(lowered, x), trained(eager, x))
        for module in (eager, lowered):
            module.m = torch.full((6,), 2.0)
    for module in (eager, lowered):
        module.double()
    for x in inputs():
        assert_same(trained(lowered, x.double()), trained(eager, x.double()))


def test_a_buffer_that_has_a_history() -> None:
    eager = Average()
    lowered: Any = lowered_copy(eager, "none")
    x, y, *_ = inputs()
    assert_same(trained(lowered, x), trained(eager, x))
    gradients = []
    for module in (eager, lowered):
        factor = torch.ones(6, requires_grad=True)
        module.m = module.m * factor
        result = module(y)
        result.sum().backward()
        gradients.append(factor.grad)
        assert module.m.requires_grad
    assert_same(gradients[:1], gradients[1:])


def test_modules_of_one_class_in_threads() -> None:
    eager = [Average() for _ in range(4)]
    lowered: list[Any] = [lowered_copy(module, "none") for module in eager]
    expected = [[trained(module, x) for x in inputs(i)] for i, module in enumerate(eager)]
    found: dict[int, list[list[Tensor | None]]] = {}

    def run(i: int) -> None:
        found[i] = [trained(lowered[i], x) for x in inputs_of[i]]

    inputs_of = [inputs(i) for i in range(4)]
    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        for a, b in zip(found[i], expected[i], strict=True):
            assert_same(a, b)
