"""Gradients equal those of eager, whatever is recomputed."""

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch

import aten_recompute
from benchmarks import models
from support.helpers import STRATEGIES, assert_same, lowered_copy, num_regions, step
from support.nets import ConvNet, Residual, Tied, TwoOutputs

MODELS = ["gpt", "resnet50", "mlp", "transformer"]


# Networks that fill lists and write in place. What they test in addition does not depend on the strategy.
OTHER_MODELS = [(name, strategy) for name in ("unet", "densenet121", "mobilenet") for strategy in ("none", "all")]


@pytest.mark.parametrize(
    ("name", "strategy"), [(name, strategy) for name in MODELS for strategy in STRATEGIES] + OTHER_MODELS
)
def test_gradients_of_benchmark_models_equal_eager(name: str, strategy: str) -> None:
    workload = models.make(name, size="small")
    eager = workload.module
    lowered = lowered_copy(eager, STRATEGIES[strategy])
    for seed in (1, 2):  # the second call runs the compiled programs again
        torch.manual_seed(seed)
        eager_loss = workload.step(eager)
        eager_random = torch.get_rng_state()
        torch.manual_seed(seed)
        loss = workload.step(lowered)
        assert torch.equal(loss, eager_loss)
        assert torch.equal(torch.get_rng_state(), eager_random)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        assert_same(list(lowered.buffers()), list(eager.buffers()))
    assert num_regions(lowered) == [1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("strategy", ["none", "segments"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_other_dtypes_equal_eager(name: str, strategy: str, dtype: torch.dtype) -> None:
    workload = models.make(name, size="small")
    eager = workload.module.to(dtype)
    inputs = tuple(t.to(dtype) if t.is_floating_point() else t for t in workload.inputs)
    workload = models.Workload(name, eager, inputs, workload.loss_fn)
    lowered = lowered_copy(eager, strategy)
    torch.manual_seed(1)
    eager_loss = workload.step(eager)
    torch.manual_seed(1)
    assert torch.equal(workload.step(lowered), eager_loss)
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("net", "inputs"),
    [
        (Residual(dropout=0.3), (torch.rand(5, 16),)),
        (ConvNet(), (torch.rand(4, 3, 8, 8),)),
        (Tied(), (torch.randint(11, (3, 5)),)),
        (TwoOutputs(), (torch.rand(4, 6),)),
    ],
    ids=["residual", "convnet", "tied", "two_outputs"],
)
def test_gradients_of_small_nets_equal_eager(
    net: torch.nn.Module, inputs: tuple[torch.Tensor, ...], strategy: str
) -> None:
    eager = copy.deepcopy(net)
    lowered = lowered_copy(net, STRATEGIES[strategy])
    for seed in (1, 2):
        expected = step(eager, list(eager.parameters()), inputs, seed)
        result = step(lowered, list(lowered.parameters()), inputs, seed)
        assert_same(result[0], expected[0])
        assert_same(result[1], expected[1])
        assert_same(list(lowered.buffers()), list(eager.buffers()))


def test_compiled_programs_hold_for_any_shape() -> None:
    """Only the plan was chosen for the first shape."""
    net = ConvNet()
    eager, lowered = copy.deepcopy(net), lowered_copy(net, "segments")
    for batch, size in ((4, 8), (2, 12), (7, 8)):
        inputs = (torch.rand(batch, 3, size, size),)
        assert_same(
            step(lowered, list(lowered.parameters()), inputs)[1],
            step(eager, list(eager.parameters()), inputs)[1],
        )
    assert num_regions(lowered) == [1]


def test_gradients_of_a_traced_module_equal_eager() -> None:
    net = Residual()
    x = torch.rand(3, 16)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.trace.* is deprecated")
        traced = torch.jit.trace(copy.deepcopy(net), (x,))
    lowered = aten_recompute.lower(traced, "segments")
    assert_same(
        step(lowered, list(lowered.parameters()), (x,))[1],
        step(net, list(net.parameters()), (x,))[1],
    )
    assert num_regions(lowered) == [1]


def test_gradients_of_inputs_equal_eager() -> None:
    net = Residual()
    lowered = lowered_copy(net, "segments")
    x, y = torch.rand(3, 16, requires_grad=True), torch.rand(3, 16)
    y.copy_(x.detach()).requires_grad_()
    net(x).sum().backward()
    lowered(y).sum().backward()
    assert_same([y.grad], [x.grad])


@pytest.fixture(scope="module")
def custom_operators() -> Iterator[torch.library.Library]:
    """An operator of another library that draws random numbers without the tag for it."""
    library = torch.library.Library("recompute_test", "DEF")
    library.define("noisy(Tensor x, float scale) -> Tensor")
    library.impl("noisy", lambda x, scale: x * torch.rand_like(x) * scale, "CompositeImplicitAutograd")
    yield library
    library._destroy()


class UsesCustomOperator(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.ops.recompute_test.noisy(self.linear(x), 3.0)
        return torch.ops.recompute_test.noisy(torch.sigmoid(h), 0.5)


@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
def test_a_custom_operator_that_draws_random_numbers_equals_eager(
    strategy: str, custom_operators: torch.library.Library
) -> None:
    net = UsesCustomOperator()
    lowered = lowered_copy(net, strategy)
    x = torch.rand(3, 4)
    for seed in (1, 2):
        expected = step(net, list(net.parameters()), (x,), seed)
        result = step(lowered, list(lowered.parameters()), (x,), seed)
        assert_same(result[0] + result[1], expected[0] + expected[1])
    report = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]
    assert report["regions"][0]["variants"][0]["on_tape"] == ["recompute_test::noisy"] * 2


class ViewAcrossABreak(torch.nn.Module):
    """Operators on both sides of a break compute with views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.linear(x))
        v = h[: x.size(0) // 2]
        a, b = h.chunk(2, 1)
        w = v.t()
        y = torch.relu(v) + torch.sigmoid(v) * 0.3 + (torch.sin(w) * 0.7).t()
        z = (torch.sigmoid(a) * 0.3 + torch.exp(b)).sum()
        print("between")
        y = y + torch.cos(v) + torch.exp(v) * 0.3 + (torch.tan(w) * 0.1).t()
        return y.sum() + z + (torch.cos(a) + torch.cos(b) * torch.tanh(a)).sum()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_of_views_that_two_regions_read_are_added_in_eagers_order(strategy: str) -> None:
    eager = ViewAcrossABreak()
    lowered = lowered_copy(eager, STRATEGIES[strategy])
    for seed in range(10):
        torch.manual_seed(seed)
        x = torch.randn(8, 6)
        expected = step(eager, list(eager.parameters()), (x,), seed)
        result = step(lowered, list(lowered.parameters()), (x,), seed)
        assert_same(result[0] + result[1], expected[0] + expected[1])
    assert num_regions(lowered) == [2]
