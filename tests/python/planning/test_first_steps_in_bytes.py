"""The first step keeps a budget in bytes, too: also where the method has control flow and is recorded."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker


class Grid(nn.Module):
    """A network over many points. Sizes, attributes and types decide its way, data do not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 64)
        self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.last = nn.Linear(64, 1)
        self.depth = 3
        self.register_buffer("count", torch.zeros(1))

    def hidden(self, x: Tensor) -> Tensor:
        h = nn.functional.silu(self.first(x))
        if x.size(0) > 1 and h.dtype == torch.float32 and not h.is_cuda:
            for _ in range(self.depth):
                for block in self.blocks:
                    h = h + nn.functional.silu(block(h))
        return h

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        offset = torch.zeros(x.size(0), 1, device=x.device, dtype=x.dtype)
        return ((self.last(self.hidden(x)) + offset).squeeze(-1) * weights).sum()


class Forces(Grid):
    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        x.requires_grad_()
        energy = (self.last(self.hidden(x)).squeeze(-1) * weights).sum()
        g = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert g is not None
        return energy + g.pow(2).sum()


class DataDecide(Grid):
    """Asks about data that follow from one of its inputs."""

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        if bool(weights.sum() > 0):
            return (self.last(self.hidden(x)).squeeze(-1) * weights).sum()
        return self.last(self.hidden(x)).sum()


class LargeDataDecide(Grid):
    """Asks about data that take more memory than there is, and has to run on the tensors of the call."""

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        h = self.hidden(x)
        if bool(h.sum() > 0):
            return (self.last(h).squeeze(-1) * weights).sum()
        return self.last(h).sum()


class Asks(Grid):
    """Asks about its buffers and about what it made of small tensors, and has rows that data choose."""

    cutoff: Tensor
    kinds: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cutoff", torch.tensor(4.5))
        self.register_buffer("kinds", torch.tensor([2, 0, 1]))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        h = self.hidden(x)
        cutoff = self.cutoff.item()
        if cutoff > 4:
            h = h * cutoff
        offsets = torch.zeros(3, device=x.device)
        offsets[1] += 2.0
        if torch.allclose(offsets, torch.zeros_like(offsets)):
            h = h.cos()
        chosen = self.kinds[(torch.arange(x.size(0), device=x.device) * 7) % 3]
        total = self.last(h).sum()
        for kind in range(int(self.kinds.max()) + 1):
            mask = chosen == kind
            total = total + (self.last(h[mask]).squeeze(-1) * weights[mask]).sum() * offsets[kind].item()
        return total


class Counts(Grid):
    """Writes to an attribute, and to a tensor of its own."""

    count: Tensor

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        self.count += 1
        h = self.hidden(x)
        h[:, 0] = 1.0
        return (self.last(h).squeeze(-1) * weights).sum()


def gradients(module: nn.Module, x: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(module(x.clone(), weights), list(module.parameters()))


def peaks_of(module: nn.Module, x: Tensor, weights: Tensor, steps: int, tracker: Tracker) -> list[int]:
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    peaks = []
    for _ in range(steps):
        x = x.detach()
        with tracker.measure_peak() as peak:
            module(x, weights).backward()
        peaks.append(peak.bytes)
    return peaks


@pytest.mark.parametrize(("network", "mib"), [(Grid, 4), (Forces, 4), (DataDecide, 4), (Asks, 7), (Counts, 7)])
def test_the_first_step_keeps_the_budget(network: Callable[[], Grid], mib: int, tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = network()
    x, weights = torch.randn(6000, 8), torch.rand(6000)
    budget = mib * 2**20
    assert peaks_of(copy.deepcopy(eager), x, weights, 1, tracker)[0] > 3 * budget
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=budget, exact=False, accumulate=True
    )
    assert max(peaks_of(lowered, x, weights, 4, tracker)) <= budget
    [specialization] = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert specialization["breaks"] == []
    [variant] = specialization["regions"][0]["variants"]
    # The plan counts the gradient of x as a new one, so the steps are like their plan.
    assert variant["measured_peak_bytes"] == pytest.approx(variant["predicted_peak_bytes"], rel=0.01)
    for found, expected in zip(gradients(lowered, x, weights), gradients(eager, x, weights), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
    assert torch.equal(dict(lowered.named_buffers())["count"], torch.tensor([5.0 if network is Counts else 0.0]))


@pytest.mark.parametrize("network", [Grid, Forces, DataDecide, Counts])
def test_the_first_step_keeps_the_smallest_budget_without_slices(network: Callable[[], Grid], tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = network()
    x, weights = torch.randn(6000, 8), torch.rand(6000)

    def under(budget: int) -> torch.jit.ScriptModule:
        scripted = torch.jit.script(copy.deepcopy(eager))
        return aten_recompute.lower(scripted, "budget", memory_budget=budget, accumulate=True, cost_model="flops")

    with pytest.raises(aten_recompute.BudgetUnreachableError) as refused:
        peaks_of(under(1000), x, weights, 1, tracker)
    budget = refused.value.smallest_peak_bytes
    lowered = under(budget)
    # The gradient of the loss, which backward() makes, is one number of four bytes.
    assert max(peaks_of(lowered, x, weights, 4, tracker)) <= budget + 4
    for found, expected in zip(gradients(lowered, x, weights), gradients(eager, x, weights), strict=True):
        if network is Forces:  # sums of second derivatives are added in another order
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
        else:
            assert torch.equal(found, expected)
    assert torch.equal(dict(lowered.named_buffers())["count"], torch.tensor([5.0 if network is Counts else 0.0]))


class Chosen(nn.Module):
    """Its last layer is for those rows that data choose, by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(3))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        h = torch.tanh(self.layers[1](torch.tanh(self.layers[0](x))))
        rows = (h[:, 0] * weights > 0).nonzero().squeeze(1)
        return torch.relu(self.layers[2](h[rows])).sum()


def test_first_steps_keep_the_budget_where_data_choose_rows(tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = Chosen()
    x, weights = torch.randn(1500, 48), torch.rand(1500)
    budget = 8 * peaks_of(copy.deepcopy(eager), x, weights, 1, tracker)[0] // 10
    scripted = torch.jit.script(copy.deepcopy(eager))
    lowered = aten_recompute.lower(scripted, "budget", memory_budget=budget, accumulate=True)
    assert max(peaks_of(lowered, x, weights, 3, tracker)) <= budget
    for found, expected in zip(gradients(lowered, x, weights), gradients(eager, x, weights), strict=True):
        assert torch.equal(found, expected)


def test_the_first_step_keeps_the_smallest_peak_where_the_budget_is_out_of_reach(tracker: Tracker) -> None:
    torch.manual_seed(0)
    x, weights = torch.randn(6000, 8), torch.rand(6000)
    lowered = aten_recompute.lower(
        torch.jit.script(Forces()), "budget", memory_budget="200KiB", exact=False, unreachable="leanest"
    )
    peaks = peaks_of(lowered, x, weights, 4, tracker)
    assert max(peaks) <= 1.1 * min(peaks)


@pytest.mark.parametrize("network", [DataDecide, LargeDataDecide])
def test_data_decide_which_way_a_method_takes(network: Callable[[], Grid], tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = network()
    x, weights = torch.randn(600, 8), torch.rand(600)
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget="1MiB", exact=False, accumulate=True
    )
    for sign in (1, -1):
        for found, expected in zip(
            gradients(lowered, x, sign * weights), gradients(eager, x, sign * weights), strict=True
        ):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


class Edges(nn.Module):
    """What nodes of a graph send each other, in tensors much larger than those of the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor, sources: Tensor) -> Tensor:
        for _ in range(2):
            messages = self.layer(x).index_select(0, sources)
            targets = sources.flip(0).unsqueeze(1).expand_as(messages)
            x = torch.tanh(x + torch.zeros_like(x).scatter_add(0, targets, messages))
        return x.square().mean()


@pytest.mark.parametrize(("exact", "share"), [(True, 0.8), (False, 0.8), (False, 0.6)])
def test_first_steps_keep_the_budget_where_single_operators_exceed_it(
    exact: bool, share: float, tracker: Tracker
) -> None:
    torch.manual_seed(0)
    eager = Edges()
    x, sources = torch.randn(300, 32), torch.randint(0, 300, (6000,))
    budget = int(share * peaks_of(copy.deepcopy(eager), x, sources, 1, tracker)[0])
    scripted = torch.jit.script(copy.deepcopy(eager))
    lowered = aten_recompute.lower(scripted, "budget", memory_budget=budget, accumulate=True, exact=exact)
    assert max(peaks_of(lowered, x, sources, 3, tracker)) <= budget
    for found, expected in zip(gradients(lowered, x, sources), gradients(eager, x, sources), strict=True):
        torch.testing.assert_close(found, expected, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6)


class Messages(nn.Module):
    """What atoms send over edges, with a filter for all layers at once, as PaiNN makes it."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = layers
        self.width = width
        self.filters = nn.Linear(8, 3 * layers * width)
        self.hidden = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))

    def forward(self, x: Tensor, offsets: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        offsets.requires_grad_()
        lengths = torch.linalg.vector_norm(offsets, dim=[-1], keepdim=True)
        radial = torch.exp(-(lengths * torch.arange(8, dtype=x.dtype, device=x.device)))
        filters = torch.split(self.filters(radial) * torch.cos(lengths), 3 * self.width, dim=-1)
        h = x
        v = torch.zeros(x.size(0), 3, self.width)
        for k, layer in enumerate(self.hidden):
            messages = layer(h)[j] * filters[k]
            a, b, c = torch.split(messages, self.width, dim=-1)
            h = h.index_add(0, i, a)
            v = v.index_add(0, i, b.unsqueeze(1) * offsets.unsqueeze(-1) + c.unsqueeze(1) * v[j])
        energy = h.sum() + v.pow(2).sum()
        g = torch.autograd.grad([energy], [offsets])[0]
        assert g is not None
        return energy, g


def test_systems_that_grow_keep_the_budget_from_their_first_call_on(tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager = Messages(3, 16).requires_grad_(False)
    atoms = torch.randn(60, 16)

    def peak_of(module: nn.Module, edges: int) -> int:
        i, j = (torch.arange(edges) * 7) % 60, (torch.arange(edges) * 11) % 60
        offsets = torch.randn(edges, 3)
        with tracker.measure_peak() as peak:
            module(atoms, offsets, i, j)
        return peak.bytes

    budget = int(0.4 * max(peak_of(eager, 3600) for _ in range(2)))
    scripted = torch.jit.script(copy.deepcopy(eager))
    lowered = aten_recompute.lower(scripted, "budget", memory_budget=budget, exact=False)
    for edges in (1500, 2600, 3300, 3600, 3600):
        assert peak_of(lowered, edges) <= budget, edges


class Depthwise(nn.Module):
    """On such small images, the backward of this convolution takes many times its operands with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(288, 288, 5, padding=2, groups=288)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution(x).relu()


def test_a_layout_that_takes_more_than_the_budget_is_not_tried(tracker: Tracker) -> None:
    torch.manual_seed(0)
    eager, x = nn.Sequential(*[Depthwise() for _ in range(12)]), torch.randn(8, 288, 4, 4)

    def peaks(module: nn.Module) -> list[int]:
        found = []
        for _ in range(3):
            module.zero_grad(set_to_none=True)
            with tracker.measure_peak() as peak:
                module(x).sum().backward()
            found.append(peak.bytes)
        return found

    budget = int(0.6 * peaks(eager)[-1])
    scripted = torch.jit.script(copy.deepcopy(eager))
    lowered = aten_recompute.lower(scripted, "budget", memory_budget=budget, exact=False)
    assert max(peaks(lowered)) <= budget


class Hops(nn.Module):
    """Sends messages along edges, in blocks of an `if`, as scripted layers of torch_geometric do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

    def collect(self, x: Tensor, edges: Tensor) -> tuple[Tensor, int]:
        if x.dim() == 2:
            messages = x.index_select(0, edges[0])
        else:
            messages = x
        return messages, x.size(0)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        out = x
        for layer in self.layers:
            messages, size = self.collect(x, edges)
            if messages.numel() > 0:
                x = torch.zeros(size, 32).index_add(0, edges[1], messages * 0.5)
            out = out + layer(x)
        return out


def test_what_a_path_has_used_is_released_while_it_is_recorded(tracker: Tracker) -> None:
    eager = Hops()
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none")
    x, edges = torch.randn(1000, 32), torch.randint(0, 1000, (2, 8000))

    def peak_of(module: nn.Module) -> int:
        with torch.no_grad(), tracker.measure_peak() as peak:
            module(x, edges)
        return peak.bytes

    # The input of a hop may be held until the hop is over, and a sum until the next one.
    assert peak_of(lowered) <= peak_of(eager) + 2 * 1000 * 32 * 4


class FarthestAndNearest(nn.Module):
    """A loss on distances between all rows, of which there are more than weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, x: Tensor) -> Tensor:
        rows = nn.functional.normalize(self.embed(x), dim=1)
        distances = torch.cdist(rows, rows)
        return (distances.max(1)[0] - distances.min(1)[0]).mean()


@pytest.mark.parametrize(("rows", "share", "exact"), [(256, 0.8, True), (1024, 0.6, False)])
def test_first_steps_keep_the_budget_with_distances(rows: int, share: float, exact: bool, tracker: Tracker) -> None:
    eager = FarthestAndNearest()
    x = torch.randn(rows, 64)

    def peak_of(module: nn.Module) -> int:
        module.zero_grad(set_to_none=True)
        with tracker.measure_peak() as peak:
            module(x).backward()
        return peak.bytes

    budget = int(share * max(peak_of(eager), peak_of(eager)))
    lowered = aten_recompute.lower(
        torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=f"{budget}B", exact=exact
    )
    assert max(peak_of(lowered) for _ in range(3)) <= budget


class WithoutLoops(nn.Module):
    """Two layers of a graph network, each of which removes edges from a node to itself (as GCNConv does)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            others = edges[:, edges[0] != edges[1]]
            nodes = torch.arange(x.size(0), device=x.device)
            sources, targets = torch.cat([others[0], nodes]), torch.cat([others[1], nodes])
            degree = torch.zeros(x.size(0), dtype=x.dtype).index_add(0, targets, torch.ones(targets.size(0)))
            messages = layer(x).index_select(0, sources) * degree[targets].rsqrt().unsqueeze(1)
            out = torch.zeros_like(x).scatter_add(0, targets.unsqueeze(1).expand_as(messages), messages)
            x = nn.functional.dropout(out.relu(), 0.2, self.training)
        return x.square().mean()


class EdgeConvolutions(nn.Module):
    """Convolutions over the neighbors of points (DGCNN), some of whose kernels need much workspace in slices."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))
        self.second = nn.Sequential(nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2))

    def features(self, x: Tensor, neighbors: Tensor) -> Tensor:
        batch, channels, points = x.size()
        count = neighbors.size(2)
        index = neighbors.view(batch, 1, points * count).expand(batch, channels, points * count)
        near = x.gather(2, index).view(batch, channels, points, count)
        center = x.unsqueeze(3).repeat(1, 1, 1, count)
        return torch.cat([near - center, center], dim=1).contiguous()

    def forward(self, x: Tensor, neighbors: Tensor) -> Tensor:
        h = self.first(self.features(x, neighbors)).amax(3)
        return self.second(self.features(h, neighbors)).amax(3).square().mean()


@pytest.mark.parametrize("kind", ["graph", "convolutions"])
def test_first_steps_in_slices_keep_the_budget(kind: str, tracker: Tracker) -> None:
    torch.manual_seed(0)
    if kind == "graph":
        eager: nn.Module = WithoutLoops()
        inputs = torch.randn(2000, 32), torch.randint(0, 2000, (2, 12000))
    else:
        eager = EdgeConvolutions()
        inputs = torch.randn(4, 3, 256), torch.randint(0, 256, (4, 256, 10))

    def peak_of(module: nn.Module) -> int:
        module.zero_grad(set_to_none=True)
        x = inputs[0].clone().requires_grad_()
        with tracker.measure_peak() as peak:
            module(x, inputs[1]).backward()
        return peak.bytes

    def lower(budget: int) -> nn.Module:
        return aten_recompute.lower(
            torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=f"{budget}B", exact=False
        )

    budget = int(0.4 * max(peak_of(eager), peak_of(eager)))
    try:
        peak_of(lower(budget))
    except aten_recompute.BudgetUnreachableError as error:
        budget = error.smallest_peak_bytes
    lowered = lower(budget)
    peaks = [peak_of(lowered) for _ in range(3)]
    # While operators are profiled, blocks of less than 64 KiB do not count. A backward begins with one number.
    assert peaks[0] <= budget + 64 * 1024
    assert max(peaks[1:]) <= budget + 4


class WeightedBags(nn.Module):
    """Sums of the rows that a query is most like (product keys, arXiv:1907.05242)."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(256, 32))
        self.values = nn.EmbeddingBag(256, 32, mode="sum")
        self.query = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        scores, rows = (self.query(x) @ self.keys.t()).topk(8, -1)
        return self.values(rows, per_sample_weights=scores.softmax(-1)).square().mean()


def test_the_first_step_keeps_the_budget_with_the_largest_elements(tracker: Tracker) -> None:
    eager = WeightedBags()
    x = torch.randn(2048, 32)

    def peak_of(module: nn.Module) -> int:
        module.zero_grad(set_to_none=True)
        leaf = x.clone().requires_grad_()
        with tracker.measure_peak() as peak:
            module(leaf).backward()
        return peak.bytes

    budget = max(peak_of(eager), peak_of(eager))
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "budget", memory_budget=f"{budget}B")
    assert max(peak_of(lowered) for _ in range(3)) <= budget


@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss"])
def test_estimates_of_operators_give_no_warnings(loss: str) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.is_squared = loss == "mse_loss"

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.layer(x))
            return nn.functional.mse_loss(y, x) if self.is_squared else nn.functional.smooth_l1_loss(y, x)

    scripted = torch.jit.script(Loss())
    lowered = aten_recompute.lower(scripted, "budget", memory_budget="1MiB", exact=False, unreachable="leanest")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        lowered(torch.randn(4096, 32)).backward()
    assert [str(each.message) for each in given] == []
