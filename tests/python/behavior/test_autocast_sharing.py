"""Calls in one block of autocast share the cast of a parameter, so its gradients are added in the lower precision."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, scripted_copy

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "all": {},
    "budget": {"memory_budget": 0.8, "unreachable": "leanest"},
}


class Net(nn.Module):
    """Autocast casts three parameters, and leaves one in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8, bias=False)
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.a(x)) * self.scale
        return self.b(y)


class SeveralRegions(nn.Module):
    """Printing ends a region. Both regions read the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.a(x))
        print("between")
        return torch.tanh(self.a(x))


class Repeated(nn.Module):
    """Reads its weights three times in one call, so that the gradient of a cast is itself a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.a(self.norm(self.a(x))))
        return torch.sin(self.a(y)) + x


class RepeatedConvolution(nn.Module):
    """Its bias is an optional parameter, whose casts are read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        image = x.view(-1, 4, 2, 4)
        return self.a(torch.tanh(self.a(image))).view_as(x) + x


class Tied(nn.Module):
    """The last layer has the weight of the embedding, which autocast does not cast."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        tokens = (x * 4).detach().long().remainder(8).amax(-1)
        y = F.embedding(tokens, self.weight) * x
        return F.linear(torch.tanh(self.a(y)), self.weight)


class ReadBeforeAndAfterTheCast(nn.Module):
    """Reads the weight as it is, as a view and in a block without autocast, before and after two products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight.sum(0) + x * self.weight[1]
        y = torch.tanh(F.linear(y, self.weight)) + y * self.weight[2].exp()
        with torch.autocast("cpu", enabled=False):
            y = F.linear(y.float(), self.weight.sin())
        y = F.linear(torch.tanh(y), self.weight)
        return torch.tanh(F.linear(y, self.weight.t())) * self.weight.amax(0)


class CastByHandAsWell(nn.Module):
    """Casts its weight itself, too, so that the region does not know which cast others share."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(F.linear(x, self.weight)) * self.weight.to(torch.float64).sum(0).float()


def autocast(**options: Any) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, **options)


def two_calls(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        return (module(x).float().sin() + module(x.flip(0)).float().cos()).sum()


def three_calls(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        return sum((module(x * k).float().square().mean() for k in (1.0, 0.3, 2.0)), torch.zeros(()))


def one_after_the_other(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        return module(module(x)).float().square().mean()


def two_blocks(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        first = module(x).float().sum()
    with autocast():
        return first + module(x * 2).float().square().sum()


def nested_blocks(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        with autocast():
            first = module(x).float().sum()
        with autocast(enabled=False):
            second = module(x).sum()
        return first + second + module(x * 2).float().square().sum()


def without_cache(module: nn.Module, x: Tensor) -> Tensor:
    with autocast(cache_enabled=False):
        return (module(x).float().sin() + module(x.flip(0)).float().cos()).sum()


def one_is_dropped(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        module(x * 5)
        return (module(x).float().sin() + module(x.flip(0)).float().cos()).sum()


def backward_in_between(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        with autocast(enabled=False):
            pass
        loss = module(x).float().sum()
        with torch.autocast("cpu", enabled=False):
            loss.backward(retain_graph=True)
        return loss + module(x * 2).float().square().sum()


def evaluated_first(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        with torch.no_grad():
            target = module(x * 2)
        return (module(x) - target).float().square().sum()


def one_backward_each(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        first, second = module(x).float().sin().sum(), module(x * 2).float().cos().sum()
    second.backward()
    return first


def one_backward_each_in_the_order_of_calls(module: nn.Module, x: Tensor) -> Tensor:
    with autocast():
        first, second = module(x).float().sin().sum(), module(x * 2).float().cos().sum()
    first.backward()
    return second


SETTINGS = (
    two_calls,
    three_calls,
    one_after_the_other,
    two_blocks,
    nested_blocks,
    without_cache,
    one_is_dropped,
    backward_in_between,
    evaluated_first,
    one_backward_each,
    one_backward_each_in_the_order_of_calls,
)


def gradients(module: nn.Module, setting: Any, x: Tensor) -> list[Tensor | None]:
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    loss = setting(module, x)
    loss.backward()
    return [loss.detach(), x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("strategy", OPTIONS)
@pytest.mark.parametrize("kind", [Net, SeveralRegions, Repeated, RepeatedConvolution, Tied, ReadBeforeAndAfterTheCast])
def test_gradients_of_calls_that_share_a_cast(kind: type[nn.Module], strategy: str, setting: Any) -> None:
    torch.manual_seed(0)
    eager = kind()
    lowered = aten_recompute.lower(scripted_copy(eager), strategy, **OPTIONS[strategy])
    for _ in range(3):
        x = torch.randn(32, 8)
        assert_same(gradients(lowered, setting, x), gradients(eager, setting, x))
    (method,) = aten_recompute.report(lowered)["methods"]
    assert method["unplanned_calls"] == []


def test_a_weight_that_the_method_casts_itself_differs_in_rounding_alone() -> None:
    torch.manual_seed(0)
    eager = CastByHandAsWell()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(32, 8)
    for ours, theirs in zip(gradients(lowered, two_calls, x), gradients(eager, two_calls, x), strict=True):
        assert ours is not None
        assert theirs is not None
        assert (ours - theirs).norm() <= torch.finfo(torch.bfloat16).eps * theirs.norm()


class RunningAverage(nn.Module):
    """Updates a buffer in training, with operators that autocast casts nothing for."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.a(x))
        if self.training:
            self.mean.mul_(0.5).add_(y.detach().mean(0).to(self.mean.dtype))
        return y


def test_a_buffer_that_is_updated_leaves_the_plan() -> None:
    torch.manual_seed(0)
    eager = RunningAverage()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")

    def trained_and_evaluated(module: nn.Module, x: Tensor) -> Tensor:
        with autocast():
            loss = module.train()(x).float().sin().sum()
            return loss + module.eval()(x.flip(0)).float().cos().sum()

    for _ in range(3):
        x = torch.randn(32, 8)
        ours, theirs = (gradients(module, trained_and_evaluated, x) for module in (lowered, eager))
        assert_same([*ours, dict(lowered.named_buffers())["mean"]], [*theirs, eager.mean])
    (method,) = aten_recompute.report(lowered)["methods"]
    assert method["unplanned_calls"] == []


class ReadsBeforeAndAfterABreak(nn.Module):
    """Both regions read the same tensors, the first one several times. None of these is read both cast and as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x) * 0.5 + x * self.scale + x * x + self.layer(self.layer(x * 0.5))
        print("between")
        return y + x.exp().clamp(max=3.0) * self.scale + self.layer(x * 0.5) + torch.maximum(y, self.scale)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_backward_under_autocast_adds_gradients_in_the_order_of_eager(dtype: torch.dtype, cache: bool) -> None:
    torch.manual_seed(0)
    eager = ReadsBeforeAndAfterABreak().to(dtype)
    lowered = aten_recompute.lower(scripted_copy(eager), "all")

    def found(module: nn.Module, x: Tensor) -> list[Tensor | None]:
        module.zero_grad(set_to_none=True)
        x = x.detach().requires_grad_()
        with autocast(cache_enabled=cache):
            loss = module(x).float().square().sum() + module(x * 2).float().sin().sum()
            loss.backward()
        return [x.grad, *(p.grad for p in module.parameters())]

    for _ in range(8):
        x = torch.randn(12, 8).to(dtype)
        assert_same(found(lowered, x), found(eager, x))


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 256, bias=False) for _ in range(8)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.float().square().sum()


@pytest.mark.parametrize(("num_calls", "num_waiting"), [(1, 0), (2, 4)])
def test_gradients_are_added_to_those_of_parameters_as_soon_as_they_are_there(
    num_calls: int, num_waiting: int, tracker: Tracker
) -> None:
    """They would otherwise all wait for the end of the backward, and take twice eager's peak.

    With two calls in a block, those of the second wait in the lower precision, and the calls have casts of their own.
    How many of the eight wait depends on the CPU; up to four were seen on those that have AVX2 only.
    """
    torch.manual_seed(0)
    eager = Deep()
    lowered = aten_recompute.lower(scripted_copy(eager), "none")
    x = torch.randn(16, 256)
    peaks = []
    for module in (lowered, eager):
        for _ in range(4):
            with tracker.measure_peak() as peak:
                with autocast():
                    loss = sum((module(x) for _ in range(num_calls)), torch.zeros(()))
                loss.backward()
        peaks.append(peak.bytes)
    bytes_of_gradient = 256 * 256 * torch.bfloat16.itemsize
    assert peaks[0] <= 1.02 * peaks[1] + num_waiting * bytes_of_gradient


def test_gradients_are_asked_for_one_by_one() -> None:
    torch.manual_seed(0)
    eager = Net()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(32, 8)

    def weight_gradient(module: nn.Module) -> tuple[Tensor, ...]:
        return torch.autograd.grad(two_calls(module, x), [dict(module.named_parameters())["a.weight"]])

    assert torch.equal(*weight_gradient(lowered), *weight_gradient(eager))


def test_hooks_of_parameters_see_the_sum_once() -> None:
    torch.manual_seed(0)
    eager = Net()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")
    x = torch.randn(32, 8)

    def seen(module: nn.Module) -> list[Tensor | None]:
        found: list[Tensor | None] = []
        handles = [dict(module.named_parameters())["a.weight"].register_hook(lambda g: found.append(g.clone()))]
        handles.append(
            dict(module.named_parameters())["b.weight"].register_post_accumulate_grad_hook(
                lambda p: found.append(p.grad)
            )
        )
        gradients(module, two_calls, x)
        for handle in handles:
            handle.remove()
        assert len(found) == 2
        return found

    ours, theirs = seen(lowered), seen(eager)
    assert_same(sorted(ours, key=lambda t: t.sum()), sorted(theirs, key=lambda t: t.sum()))


def test_second_derivatives_of_two_calls() -> None:
    torch.manual_seed(0)
    eager = Net()
    lowered = aten_recompute.lower(scripted_copy(eager), "all")

    def second(module: nn.Module) -> Tensor:
        x = torch.linspace(-1, 1, 256).view(32, 8).requires_grad_()
        first = torch.autograd.grad(
            two_calls(module, x), dict(module.named_parameters())["a.weight"], create_graph=True
        )
        return torch.autograd.grad(first[0].square().sum(), x)[0]

    ours, theirs = second(lowered), second(eager)
    assert (ours - theirs).norm() <= 0.01 * theirs.norm()


def test_threads_do_not_share() -> None:
    torch.manual_seed(0)
    lowered = aten_recompute.lower(scripted_copy(Net()), "all")
    x = torch.randn(32, 8)
    lowered(x).sum().backward()
    expected = torch.autograd.grad(two_calls(lowered, x), list(lowered.parameters()))
    failures: list[str] = []

    def train() -> None:
        for _ in range(20):
            got = torch.autograd.grad(two_calls(lowered, x), list(lowered.parameters()))
            for a, b in zip(got, expected, strict=True):
                if not torch.allclose(a, b, rtol=0.02, atol=0.05):
                    failures.append("differs")

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Shared(nn.Module):
    """A module that is given the parameter, so that several modules can share it."""

    def __init__(self, w: nn.Parameter) -> None:
        super().__init__()
        self.w = w


class Twice(Shared):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.sin(x) + self.w.square().mean(1), self.w)


class Uncast(Shared):
    def forward(self, x: Tensor) -> Tensor:
        return (x + self.w.sum(0)).sin()


class CastWithoutGradient(Shared):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.w).detach() + self.w.mean()


class CastWithin(Shared):
    """einsum casts a view of the parameter, which autocast does not keep."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.einsum("ij,kj->ik", x, self.w), self.w)


class CastByItself(Shared):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.w) + F.linear(x.double(), self.w.to(torch.float64)).float()


def _dropped(make: Any, x: Tensor) -> list[Tensor]:
    twice = make(Twice)
    twice(x)
    return [make(Uncast)(x), twice(x)]


def _first_without_gradients(make: Any, x: Tensor) -> list[Tensor]:
    twice = make(Twice)
    with torch.no_grad():
        twice(x)
    with torch.autocast("cpu", enabled=False):
        y = twice(x)
    return [y, twice(x)]


def _backward_within(make: Any, x: Tensor) -> list[Tensor]:
    twice = make(Twice)
    first = twice(x)
    with torch.autocast("cpu", enabled=False):
        first.float().square().mean().backward(retain_graph=True)
    return [make(Uncast)(x), twice(x + 1), first.detach()]


# How calls in a block read a parameter that the first of them has cast.
READS: dict[str, Any] = {
    "dropped": _dropped,
    "without gradients": _first_without_gradients,
    "backward within": _backward_within,
    "cast without gradient": lambda make, x: [make(CastWithoutGradient)(x), make(Twice)(x), make(Uncast)(x)],
    "cast within": lambda make, x: [(module := make(CastWithin))(x), module(x + 1)],
    "cast by itself": lambda make, x: [(module := make(CastByItself))(x), module(x + 1), make(Twice)(x)],
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_gradients_of_a_cast_are_added_where_eager_adds_them(name: str, strategy: str) -> None:
    def train(lowers: bool) -> list[Tensor]:
        torch.manual_seed(0)
        w, x = nn.Parameter(torch.randn(16, 16) * 0.3), torch.randn(9, 16)

        def make(of: type[Shared]) -> Any:
            return aten_recompute.lower(torch.jit.script(of(w)), strategy) if lowers else of(w)

        with torch.autocast("cpu", dtype=torch.bfloat16):
            results = READS[name](make, x)
        torch.stack([y.float().square().mean() for y in results]).sum().backward()
        assert w.grad is not None
        return [*results, w.grad]

    assert_same(train(lowers=True), train(lowers=False))
