"""Stretches of operators that run slice by slice, where a budget is below what one operator needs (``exact=False``)."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.grid import Functional
from benchmarks.memory import Tracker

pytestmark = pytest.mark.usefixtures("short_search")


def make_grid() -> nn.Module:
    """Returns an energy that is a sum over the points of a grid, as that of a density functional."""
    return Functional(width=64, depth=3)


class Tokens(nn.Module):
    """A wide layer over tokens, with dropout and attention around it."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Linear(16, 48)
        self.wide, self.narrow = nn.Linear(16, 512), nn.Linear(512, 16)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = self.attend(x).view(n, t, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 8**0.5, dim=-1)
        x = x + F.dropout(torch.matmul(weights, v).transpose(1, 2).reshape(n, t, c), 0.3, self.training)
        return x + self.narrow(F.gelu(self.wide(x)))


class Volumes(nn.Module):
    """Convolutions whose kernels copy their input 27 times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv3d(1, 8, 3, padding=1), nn.Conv3d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm3d(8)
        self.last = nn.ConvTranspose3d(8, 2, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.second(self.norm(torch.relu(self.first(x))))))


class Messages(nn.Module):
    """Energies of atoms by sums over edges, with forces."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, width)
        self.filters = nn.ModuleList([nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))] * 2)
        self.out = nn.Linear(width, 1)

    def forward(self, kinds: Tensor, positions: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        positions.requires_grad_()
        distance = (positions[i] - positions[j]).square().sum(-1, keepdim=True).add(1e-3).sqrt()
        basis = torch.exp(-((distance - torch.arange(8, dtype=positions.dtype) / 2) ** 2))
        h = self.embed(kinds)
        for filter in self.filters:
            h = h + torch.zeros_like(h).index_add(0, i, h[j] * filter(basis))
        energy = self.out(torch.tanh(h)).sum()
        forces = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert forces is not None
        return energy, -forces


class Products(nn.Module):
    """Products over edges as generated code has them: sizes from broadcasting, parts in lists, scattered sums."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(4, width)
        self.filter = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 2 * width))
        self.mix = nn.Parameter(torch.randn(3, 3))
        self.out = nn.Linear(4 * width, 1)

    def forward(self, kinds: Tensor, positions: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        positions.requires_grad_()
        vectors = positions[i] - positions[j] + 0.1
        h = self.embed(kinds)
        features, weights = h[j], self.filter(torch.linalg.norm(vectors, dim=-1, keepdim=True))
        rows = torch.broadcast_tensors(features[:, :1], vectors[:, :1], weights[:, :1])[0].size(0)
        features, weights = features.expand([rows, -1]), weights.expand([rows, -1]).reshape([rows, 2, -1])
        assert features.dim() == 2, "features are rows"
        scalars = torch.einsum("zu,zu->zu", [features, weights[:, 0]])
        directed = torch.einsum("zu,zi->zui", [features * weights[:, 1], vectors])
        directed = torch.tensordot(directed, self.mix, dims=[[2], [0]])
        edges = torch.cat([scalars, directed.reshape([rows, -1])], dim=1) / 3
        index = i.unsqueeze(-1).expand(edges.shape)
        sums = torch.zeros([h.size(0), edges.size(1)], dtype=edges.dtype).scatter_add(0, index, edges)
        energy = self.out(torch.tanh(sums)).sum()
        forces = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert forces is not None
        return energy, -forces


class Branching(nn.Module):
    """Takes one path or the other by the width of a value that runs in slices."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Parameter(torch.randn(8, 3)), nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x * 2)
        if h.size(1) == 8:
            return (h @ self.wide).sin()
        assert h.size(1) == 4, "the width is 8 or 4"
        return (h @ self.narrow).cos()


class Asserting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x * 2)
        assert h.size(1) == 8, "eight columns"
        return (h @ self.weight).sin()


def points(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    return torch.rand(n, 8, generator=generator).requires_grad_(), torch.rand(n, generator=generator)


def edges(atoms: int, count: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    i, j = torch.randint(0, atoms, (2, count), generator=generator)
    kinds = torch.randint(0, 4, (atoms,), generator=generator)
    return kinds, torch.rand(atoms, 3, generator=generator, dtype=torch.float64), i, j


def step(module: Any, inputs: tuple[Tensor, ...], seed: int = 0) -> dict[str, Tensor]:
    """Returns results and gradients of a training step."""
    module.zero_grad()
    inputs = tuple(x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs)
    torch.manual_seed(seed)
    results = module(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    sum((each.square() * torch.linspace(1, 2, each.numel()).view_as(each)).sum() for each in results).backward()
    found = {f"result {i}": each.detach() for i, each in enumerate(results)}
    found |= {f"input {i}": each.grad for i, each in enumerate(inputs) if each.grad is not None}
    found |= {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    return found | {name: b.clone() for name, b in module.named_buffers()}


def peak_of(module: Any, inputs: tuple[Tensor, ...], tracker: Tracker) -> int:
    module.zero_grad()
    with tracker.measure_peak() as peak:
        results = module(*inputs)
        loss = results if isinstance(results, Tensor) else results[0].sum() + results[1].square().sum()
        loss.sum().backward()
    return peak.bytes


def smallest_budget(module: Any, inputs: tuple[Tensor, ...], **spec: Any) -> int:
    lowered = aten_recompute.lower(torch.jit.script(module), "budget", memory_budget="2B", **spec)
    with pytest.raises(aten_recompute.BudgetUnreachableError) as caught:
        step(lowered, inputs)
    return caught.value.smallest_peak_bytes


def slices_of(lowered: Any) -> int:
    specialization = aten_recompute.report(lowered)["methods"][0]["specialisations"][-1]
    return max(variant["slices"] for region in specialization["regions"] for variant in region["variants"])


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "grid": (make_grid, tuple(x.detach().double() for x in points(600))),
    "tokens": (Tokens, (torch.randn(2, 24, 16, dtype=torch.float64),)),
    "volumes": (Volumes, (torch.randn(2, 1, 8, 8, 8, dtype=torch.float64),)),
    "messages": (Messages, edges(12, 200)),
    "products": (Products, edges(12, 400)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_eagers_up_to_rounding(name: str) -> None:
    torch.manual_seed(0)
    network, inputs = CASES[name]
    eager = network().double()
    smallest = smallest_budget(copy.deepcopy(eager), inputs, exact=False)
    assert smallest < 0.9 * smallest_budget(copy.deepcopy(eager), inputs)
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=smallest, exact=False
    )
    for seed in range(3):
        expected, found = step(eager, inputs, seed), step(lowered, inputs, seed)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert slices_of(lowered) > 0


def test_ten_times_the_grid_fits_from_the_first_step_on(tracker: Tracker) -> None:
    eager = make_grid().requires_grad_(False)
    budget = peak_of(eager, points(2000), tracker)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=budget, exact=False)
    large = points(20000)
    peaks = [peak_of(lowered, large, tracker) for _ in range(4)]
    assert max(peaks) <= budget
    assert peak_of(eager, large, tracker) > 9 * budget
    assert slices_of(lowered) == 1


@pytest.mark.parametrize("name", ["tokens", "volumes", "messages", "products"])
def test_the_smallest_budget_of_the_error_is_kept(name: str, tracker: Tracker) -> None:
    torch.manual_seed(0)
    network, inputs = CASES[name]
    module = network().double()
    spec: dict[str, Any] = {"exact": False, "accumulate": True}
    lowered = aten_recompute.lower(torch.jit.script(module), "budget", memory_budget="2B", **spec)
    with pytest.raises(aten_recompute.BudgetUnreachableError) as caught:
        peak_of(lowered, inputs, tracker)
    smallest = caught.value.smallest_peak_bytes
    lowered = aten_recompute.lower(torch.jit.script(module), "budget", memory_budget=smallest, **spec)
    for p in lowered.parameters():
        p.grad = torch.zeros_like(p)

    results = lowered(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    gradients = [torch.ones_like(each) for each in results]
    torch.autograd.backward(results, gradients)
    del results

    def peak() -> int:
        with tracker.measure_peak() as measured:
            results = lowered(*inputs)
            torch.autograd.backward(results if isinstance(results, tuple) else [results], gradients)
        return measured.bytes

    assert [peak() for _ in range(4)][-1] <= smallest


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_call_may_take_another_path_inside_of_slices(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    torch.manual_seed(0)
    eager = Branching().double()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), strategy, exact=False)
    for width in (8, 8, 4, 8, 4):
        inputs = (torch.randn(16, width, dtype=torch.float64),)
        torch.testing.assert_close(step(lowered, inputs), step(eager, inputs), rtol=1e-10, atol=1e-12)
    assert len(aten_recompute.report(lowered)["methods"][0]["specialisations"]) == 2
    assert slices_of(lowered) > 0
    with pytest.raises(torch.jit.Error, match="the width is 8 or 4"):
        lowered(torch.randn(16, 5, dtype=torch.float64))
    inputs = (torch.randn(16, 8, dtype=torch.float64),)
    torch.testing.assert_close(step(lowered, inputs), step(eager, inputs), rtol=1e-10, atol=1e-12)


class Scattering(nn.Module):
    def forward(self, x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return torch.scatter_add(x * 2, 0, index, source.sin())


def test_numbers_have_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    lowered = aten_recompute.lower(torch.jit.script(Scattering()), "all", exact=False)
    inputs = torch.randn([]), torch.tensor(0), torch.randn([], requires_grad=True)
    torch.testing.assert_close(lowered(*inputs), Scattering()(*inputs))


class ReadsRows(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        y = torch.tanh(a) * torch.sin(b)
        return torch.cos(y).sum(0) / y.shape[0]


class ComparesShapes(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        y = a.tanh() * b
        z = y * 2 if y.shape == b.shape else y.sin()
        return (z * y).exp().sum(0)


@pytest.mark.parametrize("network", [ReadsRows, ComparesShapes])
def test_what_broadcasts_in_a_later_call_has_its_number_of_rows(
    network: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    eager = network()
    lowered = aten_recompute.lower(torch.jit.script(network()), "none", exact=False)
    for rows in ((6, 6), (1, 6), (6, 1), (1, 1), (4, 4)):
        inputs = tuple(torch.randn(n, 4, dtype=torch.float64) for n in rows)
        torch.testing.assert_close(step(lowered, inputs), step(eager, inputs), rtol=1e-10, atol=1e-12)
    assert slices_of(lowered) > 0


class Regrouping(nn.Module):
    def forward(self, x: Tensor, n: int, k: int) -> tuple[Tensor, int]:
        h = x.tanh().reshape([n, k])
        return h.sin().exp().sum(0), h.size(0)


def test_a_view_makes_what_the_call_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    for first in ((6, 4), (-1, 4), (6, -1)):
        lowered = aten_recompute.lower(torch.jit.script(Regrouping()), "none", exact=False)
        for n, k in (first, (6, 4), (-1, 8), (3, -1), (12, 2), (-1, 4)):
            x = torch.randn(6, 4, dtype=torch.float64)
            found, expected = lowered(x, n, k), Regrouping()(x, n, k)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        with pytest.raises(RuntimeError, match="shape"):
            lowered(torch.randn(8, 4, dtype=torch.float64), 6, 4)


class DropsConvolution(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.dropout(F.conv2d(x.tanh(), weight, padding=1), 0.4, True)


class DropsGroups(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.dropout(F.group_norm(x.tanh(), 2) * 2, 0.4, True)


class DropsAttention(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        y = x.tanh().transpose(1, 2)
        return F.dropout(F.scaled_dot_product_attention(y, y, y) * 2, 0.4, True)


@pytest.mark.parametrize("network", [DropsConvolution, DropsGroups, DropsAttention])
def test_a_dropout_behind_slices_draws_for_the_same_elements(
    network: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    lowered = aten_recompute.lower(torch.jit.script(network()), "none", exact=False)
    x, weight = torch.randn(4, 4, 5, 6, dtype=torch.float64), torch.randn(5, 4, 3, 3, dtype=torch.float64)
    if network is not DropsAttention:
        x = x.contiguous(memory_format=torch.channels_last)
    results = []
    for module in (network(), lowered):
        torch.manual_seed(1)
        results.append(module(x.clone().requires_grad_(), weight))
    assert results[1].stride() == results[0].stride()
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)
    assert slices_of(lowered) > 0


class DropsForGradient(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = (F.dropout(x, 0.5, True) * x).sum()
        gradient = torch.autograd.grad([y], [x], create_graph=True)[0]
        assert gradient is not None
        return y, gradient


def test_a_dropout_of_which_no_sizes_are_known_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    eager = DropsForGradient()
    lowered = aten_recompute.lower(torch.jit.script(DropsForGradient()), "none", exact=False)
    for rows in (3, 2, 7):
        inputs = (torch.randn(rows, 4, dtype=torch.float64),)
        torch.testing.assert_close(step(lowered, inputs), step(eager, inputs), rtol=1e-10, atol=1e-12)


class Broadcasting(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, _ = torch.broadcast_tensors(a.sin(), b)
        return x.sum(0)


def test_a_call_without_rows_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    eager = Broadcasting()
    lowered = aten_recompute.lower(torch.jit.script(Broadcasting()), "none", exact=False)
    for rows in (0, 3, 1, 0, 6):
        inputs = tuple(torch.randn(rows, 4, dtype=torch.float64) for _ in range(2))
        torch.testing.assert_close(step(lowered, inputs), step(eager, inputs), rtol=1e-10, atol=1e-12)


def test_an_assertion_fails_before_the_operators_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    lowered = aten_recompute.lower(torch.jit.script(Asserting()), "all", exact=False)
    lowered(torch.randn(16, 8)).sum().backward()
    assert slices_of(lowered) > 0
    with pytest.raises(torch.jit.Error, match="eight columns"):
        lowered(torch.randn(16, 4))


def test_exact_results_are_never_sliced() -> None:
    lowered = aten_recompute.lower(torch.jit.script(make_grid()), "budget", memory_budget="200KiB")
    with pytest.raises(aten_recompute.BudgetUnreachableError, match="this operator alone needs"):
        lowered(*points(20000))


def test_other_numbers_of_rows_are_right() -> None:
    torch.manual_seed(0)
    eager = make_grid().double()
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget="900KiB", exact=False
    )
    for n in (2000, 1, 7, 1999, 0, 3000, 64, 2000):
        inputs = tuple(x.detach().double() for x in points(n))
        torch.testing.assert_close(step(lowered, inputs), step(eager, inputs), rtol=1e-9, atol=1e-12)


def test_a_saved_module_runs_in_slices() -> None:
    torch.manual_seed(0)
    network, inputs = CASES["tokens"]
    eager = network().double()
    smallest = smallest_budget(copy.deepcopy(eager), inputs, exact=False)
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=smallest, exact=False
    )
    step(lowered, inputs)
    file = io.BytesIO()
    torch.jit.save(lowered, file)
    file.seek(0)
    loaded = torch.jit.load(file)
    torch.testing.assert_close(step(loaded, inputs), step(eager, inputs), rtol=1e-10, atol=1e-12)
    assert slices_of(loaded) > 0


def test_second_derivatives_of_what_runs_in_slices() -> None:
    torch.manual_seed(0)
    eager = make_grid().double()
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget="400KiB", exact=False
    )
    found = []
    for module in (eager, lowered):
        features, weights = (x.detach().double() for x in points(1000))
        features.requires_grad_()
        (gradient,) = torch.autograd.grad(module(features, weights), features, create_graph=True)
        gradient.square().sum().backward()
        found.append([features.grad, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)


class TwoResults(nn.Module):
    """The first result has a root of zero in some rows, where its derivative is infinite. A loss reads the second."""

    def __init__(self, detaches: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.detaches = detaches

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.first(x).square() * (x[:, :1] > 0)
        unread = self.second(h.sqrt()).sum(1)
        if self.detaches:
            unread = unread.detach()
        return unread, h.exp().sum(1)


@pytest.mark.parametrize("detaches", [False, True])
def test_what_an_undefined_gradient_leads_to_does_not_run(detaches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it zeros, the infinite derivative of the root would make the gradients NaN, and None would be zeros."""
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    torch.manual_seed(3)
    eager = TwoResults(detaches).double()
    x = torch.randn(29, 16, dtype=torch.float64)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none", exact=False)
    for _ in range(2):
        results = []
        for module in (eager, lowered):
            given = x.clone().requires_grad_(True)
            loss = module(given)[1].sum()
            results.append(torch.autograd.grad(loss, [given, *module.parameters()], allow_unused=True))
        assert [gradient is None for gradient in results[1]] == [False] * 3 + [True] * 2
        torch.testing.assert_close(results[1], results[0])


class Gated(nn.Module):
    """A wide layer over rows, and a loss that is their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.wide(x)
        return self.narrow(F.gelu(h) * h).float().sum(0)


def under_autocast(module: nn.Module, x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x)


def test_a_budget_is_kept_under_autocast(tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager, x = Gated(), torch.randn(4000, 16)
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=0.3, exact=False, cost_model="flops"
    )

    def peak_under_autocast(module: Any) -> int:
        for _ in range(3):
            module.zero_grad()
            with tracker.measure_peak() as peak:
                under_autocast(module, x).sum().backward()
        return peak.bytes

    assert peak_under_autocast(lowered) <= 0.3 * peak_under_autocast(eager)
    assert slices_of(lowered) > 0
    for name, p in lowered.named_parameters():
        torch.testing.assert_close(p.grad, eager.get_parameter(name).grad, rtol=0.02, atol=0.02)


def test_sums_over_many_slices_are_not_rounded_again_and_again() -> None:
    torch.manual_seed(0)
    network, x = Gated().bfloat16(), torch.randn(40000, 16).bfloat16()
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(network)),
        "budget",
        memory_budget=0.05,
        exact=False,
        unreachable="leanest",
        cost_model="flops",
    )
    truth = copy.deepcopy(network).double()

    def gradients(module: nn.Module, rows: Tensor) -> list[Tensor]:
        (module(rows) / len(rows)).square().sum().backward()
        return [p.grad.double() for p in module.parameters() if p.grad is not None]

    exact = gradients(truth, x.double())
    ours, eagers = gradients(lowered, x), gradients(network, x)
    assert slices_of(lowered) > 0
    for ours_of_one, eagers_of_one, right in zip(ours, eagers, exact, strict=True):
        error, usual = (float((each - right).norm() / right.norm()) for each in (ours_of_one, eagers_of_one))
        assert error <= 1.5 * usual


class FreesGraph(nn.Module):
    """Forces whose graph is kept while that of the energy is freed."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 16), nn.Linear(16, 8)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.activation == "gelu":
            h = F.gelu(h)
        elif self.activation == "relu":
            h = torch.relu(h)
        elif self.activation == "rows":  # sizes alone of what is freed are read
            h = h[torch.tensor([0, 2, 2, 5])]
        elif self.activation == "detached":  # the gradient of what is freed ends at a tensor without one
            h = h * h.detach()
        else:
            h = h * 3.0 + 1.0
        gradient = torch.autograd.grad([self.second(h).sum()], [x], create_graph=True, retain_graph=False)[0]
        assert gradient is not None
        return gradient


@pytest.mark.parametrize(
    ("activation", "raises"),
    [("gelu", True), ("relu", True), ("linear", False), ("rows", False), ("detached", False)],
)
def test_a_gradient_through_a_freed_graph_in_slices_raises_as_in_eager(
    activation: str, raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_SLICES", "always")
    torch.manual_seed(0)
    eager = FreesGraph(activation)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none", exact=False)
    x = torch.randn(40, 3)
    for _ in range(3):
        for module in (eager, lowered):
            gradient = module(x.clone().requires_grad_(True))
            if raises:
                with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                    gradient.square().sum().backward()
            else:
                gradient.square().sum().backward()
    assert slices_of(lowered) > 0
    if not raises:
        for p, expected in zip(lowered.parameters(), eager.parameters(), strict=True):
            if expected.grad is None:
                assert p.grad is None
            else:
                torch.testing.assert_close(p.grad, expected.grad, rtol=1e-5, atol=1e-6)


class EnergyAndForces(nn.Module):
    """What a potential returns in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 64), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        energies = self.second(torch.tanh(self.first(x)))
        gradient = torch.autograd.grad([energies.sum()], [x])[0]
        assert gradient is not None
        return energies, -gradient


def test_forces_in_slices_require_no_gradient_where_their_graph_is_freed() -> None:
    torch.manual_seed(0)
    eager = EnergyAndForces()
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=0.2, exact=False, cost_model="flops"
    )
    x = torch.randn(4000, 3)
    for _ in range(3):
        for module in (eager, lowered):
            energies, forces = module(x.clone().requires_grad_(True))
            assert not forces.requires_grad
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                (energies.sum() + forces.sum()).backward()
    assert slices_of(lowered) > 0
