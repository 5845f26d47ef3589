"""Autograd works on a lowered module as on the module in eager."""

import copy
import re
import threading
from typing import Any

import pytest
import torch

from support.helpers import assert_same, lowered_copy, step
from support.nets import ConvNet, Residual, TwoOutputs

STRATEGY = pytest.mark.parametrize("strategy", ["none", "all", "segments"])


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(3, 16)


@STRATEGY
def test_retain_graph_allows_a_second_backward(strategy: str, x: torch.Tensor) -> None:
    net = Residual(dropout=0.2)
    lowered = lowered_copy(net, strategy)
    for module in (net, lowered):
        torch.manual_seed(0)
        loss = module(x).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in net.parameters()])


@STRATEGY
def test_second_backward_raises_what_eager_raises(strategy: str, x: torch.Tensor) -> None:
    net = Residual()
    messages = []
    for module in (net, lowered_copy(net, strategy)):
        output = module(x)
        output.sum().backward()
        with pytest.raises(RuntimeError) as error:
            output.sum().backward()
        messages.append(str(error.value).splitlines()[0])
    assert messages[0] == messages[1]


@STRATEGY
def test_gradients_of_some_inputs_equal_eager(strategy: str) -> None:
    net = Residual()
    lowered = lowered_copy(net, strategy)
    x = torch.rand(3, 16, requires_grad=True)
    names = [name for name, _ in net.named_parameters()]
    for chosen in (["stem.weight"], ["blocks.3.down.bias"], ["blocks.1.up.weight", "stem.bias"], []):
        results = []
        for module in (net, lowered):
            parameters = dict(module.named_parameters())
            wanted = [parameters[name] for name in chosen] + [x]
            results.append(torch.autograd.grad(module(x).square().sum(), wanted))
            assert all(parameters[name].grad is None for name in names)
        assert_same(list(results[1]), list(results[0]))


@STRATEGY
def test_gradients_of_some_parameters_equal_those_of_all(strategy: str, x: torch.Tensor) -> None:
    net = Residual()
    lowered = lowered_copy(net, strategy)
    parameters = list(lowered.parameters())
    loss = lowered(x).square().sum()
    first = torch.autograd.grad(loss, parameters[-2:], retain_graph=True)
    every = torch.autograd.grad(loss, parameters, retain_graph=True)
    again = torch.autograd.grad(loss, parameters)
    assert_same(list(first), list(every[-2:]))
    assert_same(list(every), list(again))


class ReadsItsInputTwice(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight) * self.weight + x / 3.0


@STRATEGY
def test_gradients_are_added_in_eagers_order(strategy: str) -> None:
    """The caller uses the input as well, and two calls use one weight."""
    net = ReadsItsInputTwice()
    lowered = lowered_copy(net, strategy)
    values = torch.randn(64, 16)
    results = []
    for module in (net, lowered):
        x = values.clone().requires_grad_()
        (module(x) * module(torch.sin(x)) + x / 7.0).square().sum().backward()
        results.append([x.grad, module.weight.grad])
    assert_same(results[1], results[0])


@STRATEGY
@pytest.mark.parametrize("which", [0, 1])
def test_undefined_gradients_stay_undefined(strategy: str, which: int) -> None:
    net = TwoOutputs()
    lowered = lowered_copy(net, strategy)
    x = torch.rand(4, 6)
    for module in (net, lowered):
        module(x)[which].square().sum().backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in net.parameters()])
    unused = lowered.right.weight if which == 0 else lowered.left.weight
    assert unused.grad is None


@STRATEGY
def test_frozen_parameters_get_no_gradient(strategy: str, x: torch.Tensor) -> None:
    net = Residual()
    lowered = lowered_copy(net, strategy)
    for frozen in (["stem.weight"], ["blocks.0.norm.weight", "blocks.2.up.bias"], []):
        for module in (net, lowered):
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(name not in frozen)
        expected = step(net, list(net.parameters()), (x,))
        result = step(lowered, list(lowered.parameters()), (x,))
        assert_same(result[1], expected[1])


@STRATEGY
def test_no_grad_eval_and_inference_mode_equal_eager(strategy: str) -> None:
    net = ConvNet()
    lowered = lowered_copy(net, strategy)
    x = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        torch.manual_seed(0)
        expected = net(x)
        torch.manual_seed(0)
        result = lowered(x)
    assert not result.requires_grad
    assert torch.equal(result, expected)
    net.eval(), lowered.eval()
    for module in (net, lowered):
        module.zero_grad()
        module(x).square().sum().backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in net.parameters()])
    assert_same(list(lowered.buffers()), list(net.buffers()))
    net.train(), lowered.train()
    expected = step(net, list(net.parameters()), (x,))
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], expected[1])
    with torch.inference_mode():
        torch.manual_seed(0)
        expected = net(x)
        torch.manual_seed(0)
        assert torch.equal(lowered(x), expected)


@STRATEGY
def test_hooks_fire_once(strategy: str) -> None:
    net = Residual()
    lowered = lowered_copy(net, strategy)
    x = torch.rand(3, 16, requires_grad=True)
    fired = []
    for name, parameter in lowered.named_parameters():
        parameter.register_hook(lambda grad, name=name: fired.append(name))
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: fired.append(name + " accumulated"))
    x.register_hook(lambda grad: fired.append("x"))
    output = lowered(x)
    output.register_hook(lambda grad: fired.append("output"))
    output.sum().backward()
    names = [name for name, _ in lowered.named_parameters()]
    assert sorted(fired) == sorted(["output", "x"] + names + [n + " accumulated" for n in names])


def test_parameter_gradients_leave_early(x: torch.Tensor) -> None:
    """The last block's gradients are handed over before the first block's are computed."""
    lowered = lowered_copy(Residual(), "segments")
    order = []
    for name, parameter in lowered.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p, name=name: order.append((name, sum(q.grad is not None for q in lowered.parameters())))
        )
    lowered(x).sum().backward()
    assert order[0][0].startswith("blocks.3")
    assert order[-1][0].startswith("stem")
    # When the first gradient is accumulated, the region has returned no other.
    assert order[0][1] == 1


@STRATEGY
def test_a_change_of_an_input_in_place_raises(strategy: str) -> None:
    net = Residual()
    messages = []
    for module in (net, lowered_copy(net, strategy)):
        x = torch.rand(3, 16)
        output = module(x)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
            output.sum().backward()
        messages.append(re.sub(r"which is output.*", "", str(error.value).splitlines()[0]))
    assert messages[0].split(":")[0] == messages[1].split(":")[0]


@STRATEGY
def test_a_change_of_a_parameter_in_place_raises(strategy: str, x: torch.Tensor) -> None:
    lowered = lowered_copy(Residual(), strategy)
    output = lowered(x)
    with torch.no_grad():
        dict(lowered.named_parameters())["blocks.1.down.weight"].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@STRATEGY
def test_a_change_of_an_output_in_place_raises(strategy: str) -> None:
    """The backward of tanh needs its output.

    An output that the caller holds is in memory anyway, so no strategy recomputes it.
    """
    net = TanhLast()
    for module in (net, lowered_copy(net, strategy)):
        output = module(torch.rand(3, 4))
        output.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.sum().backward()


class TanhLast(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class ReturnsView(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)).view(-1)[2:]


@STRATEGY
def test_a_change_of_a_returned_view_in_place_raises(strategy: str) -> None:
    net = ReturnsView()
    lowered = lowered_copy(net, strategy)
    x = torch.rand(3, 4)
    for module in (net, lowered):
        output = module(x)
        assert output._is_view()
        output.mul_(3)
        # The backward of relu needs its output, whose memory the view shares.
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.square().sum().backward()


class TwoBranches(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 2).exp(), torch.sigmoid(y * y)


@STRATEGY
@pytest.mark.parametrize("changed", ["input", "output"])
def test_a_change_that_affects_no_wanted_gradient_does_not_raise(strategy: str, changed: str) -> None:
    """The backward of a branch without a gradient does not run, so its saved tensors are not checked."""
    results = []
    for module in (TwoBranches(), lowered_copy(TwoBranches(), strategy)):
        x = torch.linspace(0, 1, 4, requires_grad=True)
        y = torch.linspace(1, 2, 4, requires_grad=True)
        z = y * 1.0
        first, second = module(x, z)
        (z if changed == "input" else second).detach().add_(1)
        results.append(torch.autograd.grad(first.sum(), [x, y], allow_unused=True, retain_graph=True))
        results.append(torch.autograd.grad((first + second).sum(), [x], retain_graph=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (first + second).sum().backward()
    assert results[0][1] is None
    for actual, expected in zip(results[2:], results[:2], strict=True):
        assert_same(list(actual), list(expected))


@STRATEGY
def test_gradients_can_be_differentiated(x: torch.Tensor, strategy: str) -> None:
    """Gradients of ``create_graph=True`` equal eager to the bit; their own gradients are added in another order."""
    net = Residual().double()
    lowered = lowered_copy(net, strategy)
    results = []
    for module in (net, lowered):
        parameters = list(module.parameters())
        first = torch.autograd.grad(module(x.double()).square().sum(), parameters, create_graph=True)
        squares: Any = sum(g.square().sum() for g in first)
        second = torch.autograd.grad(squares, parameters)
        results.append((first, second))
    assert_same([g.detach() for g in results[1][0]], [g.detach() for g in results[0][0]])
    for actual, expected in zip(results[1][1], results[0][1], strict=True):
        torch.testing.assert_close(actual, expected)


@STRATEGY
def test_threads_can_share_a_module(strategy: str) -> None:
    net = Residual()
    lowered = lowered_copy(net, strategy)
    inputs = [torch.rand(3, 16) for _ in range(8)]
    parameters, expected_of = list(lowered.parameters()), list(net.parameters())
    expected = [torch.autograd.grad(net(x).square().sum(), expected_of) for x in inputs]
    results: dict[int, tuple[torch.Tensor, ...]] = {}

    def run(index: int) -> None:
        for _ in range(3):
            loss = lowered(inputs[index]).square().sum()
            results[index] = torch.autograd.grad(loss, parameters)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, gradients in enumerate(expected):
        assert_same(list(results[index]), list(gradients))


@STRATEGY
def test_several_calls_may_precede_one_backward(strategy: str, x: torch.Tensor) -> None:
    net = Residual(dropout=0.2)
    lowered = lowered_copy(net, strategy)
    for module in (net, lowered):
        torch.manual_seed(0)
        (module(x).sum() + module(x * 2).square().sum() + module(module(x)).sum()).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in net.parameters()])


@STRATEGY
def test_parameters_after_optimizer_steps_equal_eager(strategy: str, x: torch.Tensor) -> None:
    net = Residual(dropout=0.1)
    lowered = lowered_copy(net, strategy)
    for module in (net, lowered):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        torch.manual_seed(0)
        for _ in range(5):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    assert_same(list(lowered.parameters()), list(net.parameters()))


def test_a_deepcopy_is_independent(x: torch.Tensor) -> None:
    lowered = lowered_copy(Residual(), "segments")
    lowered(x)
    with torch.no_grad():  # with gradients, the parameters of a copied ScriptModule are not leaves
        twin = copy.deepcopy(lowered)
    for parameter in twin.parameters():
        parameter.requires_grad_()
    before = twin(x).detach().clone()
    with torch.no_grad():
        for parameter in lowered.parameters():
            parameter.zero_()
    assert torch.equal(twin(x), before)
    twin(x).sum().backward()
    assert all(p.grad is None for p in lowered.parameters())
    assert all(p.grad is not None for p in twin.parameters())
