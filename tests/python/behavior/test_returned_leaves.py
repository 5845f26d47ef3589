"""Leaves that a method makes with requires_grad_() and returns: the caller gets their gradients, as from eager."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy


class Copy(nn.Module):
    """The usual way: the positions are copied, the energy is computed from them, and both are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positions = x.detach().clone().requires_grad_(True)
        energy = (torch.sin(positions * self.weight) ** 3).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class Shared(Copy):
    """The leaf shares memory with the argument."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positions = x.detach().requires_grad_(True)
        energy = (torch.sin(positions * self.weight) ** 3).sum() + torch.cos(x).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class Filled(Copy):
    """The strain of a cell: zeros whose gradient is the stress."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        strain = torch.zeros([x.size(1), x.size(1)], dtype=x.dtype).requires_grad_(True)
        energy = (torch.sin((x + x @ strain) * self.weight) ** 3).sum()
        stress = torch.autograd.grad([energy], [strain], create_graph=True)[0]
        assert stress is not None
        return strain, energy, stress


class Part(Copy):
    """A part of the argument, with the leaf and a view of it among the results."""

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        positions = x.detach()[1:, :3].requires_grad_(True)
        energy = (torch.tanh(positions * self.weight[:3]) * x[1:, :3]).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return [positions, positions.t()], energy, force


class Two(Copy):
    """The second leaf is made from the first one."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first = x.detach().clone().requires_grad_(True)
        second = first.detach().clone().requires_grad_(True)
        energy = (torch.sin(first * self.weight) * torch.cos(second)).sum()
        force = torch.autograd.grad([energy], [first, second], create_graph=True)[1]
        assert force is not None
        return first, second, force


class OfAnother(Copy):
    """The leaf is made from another one, which is not returned."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x.detach().clone().requires_grad_(True)
        inner = torch.autograd.grad([torch.sin(first * self.weight).sum()], [first], create_graph=True)[0]
        assert inner is not None
        second = first.detach().view(-1).clone().requires_grad_(True)
        force = torch.autograd.grad([(torch.cos(second) * inner.view(-1)).sum()], [second], create_graph=True)[0]
        assert force is not None
        return second, force


class InADict(Copy):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        positions = x.detach().clone().requires_grad_(True)
        energy = (torch.sin(positions * self.weight) ** 3).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return {"positions": positions, "energy": energy, "force": force}


class ReadBefore(Copy):
    """What has read the tensor before it becomes a leaf adds nothing to its gradient."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positions = x.detach().clone()
        before = torch.tanh(positions) * self.weight
        positions.requires_grad_(True)
        energy = (torch.sin(positions * self.weight) ** 3 + before).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class Computed(Copy):
    """The leaf is a copy of what the method has computed."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.tanh(x * self.weight)
        positions = hidden.detach().clone().requires_grad_(True)
        energy = (torch.sin(positions) ** 3 + hidden).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class Drawn(Copy):
    """Random numbers are drawn in the method's order."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        noise = torch.rand_like(x)
        positions = torch.rand_like(x).requires_grad_(True)
        energy = (torch.sin(positions * self.weight) * noise).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class Written(Copy):
    """The argument is written to before it is copied."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        own = x.detach() * 1.0
        own[0] = own[1]
        positions = own.clone().requires_grad_(True)
        energy = (torch.sin(positions * self.weight) ** 3).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class WrittenLater(Copy):
    """The leaf shares memory with what is written to later."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        own = torch.zeros_like(x)
        positions = own.detach()[:1].clone().requires_grad_(True)
        own.add_(x.detach())
        energy = (torch.sin(positions * self.weight) * own).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


class OfComputed(Copy):
    """Leaves of what the method has computed from parameters and from another leaf, in containers."""

    def forward(self, x: Tensor) -> tuple[list[Tensor], dict[str, Tensor], Tensor]:
        hidden = torch.tanh(x * self.weight)
        first = (hidden * 2).detach().requires_grad_(True)
        force = torch.autograd.grad([(torch.sin(first) ** 3 * hidden).sum()], [first], create_graph=True)[0]
        assert force is not None
        second = (force * first).detach().clone().requires_grad_(True)
        return [first, second], {"first": first}, (second * torch.exp(first) + force * hidden).sum()


class OnlyHandedOn(Copy):
    """Nothing is computed from the leaf, such as a state that the next call begins with."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = x.detach().clone().requires_grad_(True)
        force = torch.autograd.grad([torch.sin(positions * self.weight).sum()], [positions], create_graph=True)[0]
        assert force is not None
        return torch.tanh(force).detach().requires_grad_(), force


ONE_REGION = [
    Copy,
    Shared,
    Filled,
    Part,
    Two,
    OfAnother,
    InADict,
    ReadBefore,
    Computed,
    Drawn,
    Written,
    WrittenLater,
    OfComputed,
    OnlyHandedOn,
]


class Given(Copy):
    """The argument requires grad itself, so that the leaf is none."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positions = x.clone().requires_grad_(True)
        energy = (torch.sin(positions * self.weight) ** 3).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        return positions, energy, force


SEVERAL_REGIONS = [Given]


class Both(Copy):
    """Asks for gradients of the argument as well as of the leaf that is made from it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = torch.relu(x)
        positions = x.detach().clone().requires_grad_(True)
        energy = (torch.relu(x) + positions * self.weight).sum()
        force = torch.autograd.grad([energy], [x, positions], create_graph=True)[1]
        assert force is not None
        return positions, torch.tanh(force) * before


@pytest.mark.lowered_only
@pytest.mark.parametrize("twice", [False, True], ids=["once", "create_graph"])
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_target_beside_a_leaf_that_is_made_from_it(strategy: str, twice: bool) -> None:
    torch.manual_seed(0)
    eager = Both()
    lowered = lowered_copy(eager, strategy)
    results = []
    for module in (eager, lowered):
        x = torch.linspace(0.1, 1, 20).view(5, 4).requires_grad_()
        outputs = module(x)
        wanted = [x, *module.parameters()]
        ones = [torch.ones_like(each) for each in outputs]
        results.append(torch.autograd.grad(outputs, wanted, ones, create_graph=twice))
    assert_same(list(results[1]), list(results[0]))
    (specialisation,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert len(specialisation["regions"]) == 1


class FreedBehindTheLeaf(Copy):
    """The second gradient frees the graph that leads from the first one to the leaf."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positions = x.detach().clone().requires_grad_(True)
        force = torch.autograd.grad([torch.sin(positions).sum()], [positions], create_graph=True)[0]
        assert force is not None
        curvature = torch.autograd.grad([force.sum()], [positions])[0]
        assert curvature is not None
        return positions, force, torch.tanh(x * self.weight) * curvature


@pytest.mark.lowered_only
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_freed_graph_stops_only_gradients_of_the_leaf_behind_it(strategy: str) -> None:
    torch.manual_seed(0)
    eager = FreedBehindTheLeaf()
    results = []
    for module in (eager, lowered_copy(eager, strategy)):
        x = torch.linspace(0.1, 1, 20).view(5, 4).requires_grad_()
        positions, force, result = module(x)
        loss = force.sum() + result.sum()
        results.append(torch.autograd.grad(loss, [x, *module.parameters()], retain_graph=True))
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(loss, [positions])
    assert_same(list(results[1]), list(results[0]))


class FreedOnOneWay(Copy):
    """The sum depends on the leaf by a freed way, and on the argument by another."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        positions = x.detach().clone().requires_grad_(True)
        force = torch.autograd.grad([torch.sin(positions).sum()], [positions], create_graph=True)[0]
        assert force is not None
        sum_of_both = force + torch.tanh(x) * self.weight
        curvature = torch.autograd.grad([sum_of_both.sum()], [positions])[0]
        assert curvature is not None
        return positions, sum_of_both + curvature


@pytest.mark.lowered_only
@pytest.mark.parametrize("twice", [False, True], ids=["once", "create_graph"])
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_sum_that_is_freed_on_one_way_has_gradients_on_the_other(strategy: str, twice: bool) -> None:
    torch.manual_seed(0)
    eager = FreedOnOneWay()
    results, second = [], []
    for module in (eager, lowered_copy(eager, strategy)):
        x = torch.linspace(0.1, 1, 20).view(5, 4).requires_grad_()
        positions, result = module(x)
        wanted = [x, *module.parameters()]
        gradients = torch.autograd.grad((result**2).sum(), wanted, retain_graph=True, create_graph=twice)
        results.append([result, *gradients])
        if twice:
            loss = torch.stack([each.square().sum() for each in gradients]).sum()
            second.append(torch.autograd.grad(loss, wanted, retain_graph=True))
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(result.sum(), [positions], retain_graph=True)
        with pytest.raises(RuntimeError, match="a second time"):
            result.sum().backward()
    assert_same(results[1], results[0])
    if twice:  # the sums of second derivatives have another order
        torch.testing.assert_close(second[1], second[0])


class FreedBehindAHiddenLeaf(Copy):
    """The method keeps the leaf to itself."""

    def forward(self, x: Tensor) -> Tensor:
        positions = x.detach().clone().requires_grad_(True)
        energy = torch.sin(positions).sum()
        force = torch.autograd.grad([energy], [positions])[0]
        assert force is not None
        return torch.tanh(x * self.weight) * force * energy


@pytest.mark.lowered_only
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_freed_graph_behind_a_leaf_that_is_not_returned(strategy: str) -> None:
    """A backward goes to that leaf as well, and gradients that are asked for do not."""
    torch.manual_seed(0)
    eager = FreedBehindAHiddenLeaf()
    results = []
    for module in (eager, lowered_copy(eager, strategy)):
        x = torch.linspace(0.1, 1, 20).view(5, 4).requires_grad_()
        result = module(x)
        results.append([result, *torch.autograd.grad(result.sum(), [x, *module.parameters()], retain_graph=True)])
        with pytest.raises(RuntimeError, match="a second time"):
            result.sum().backward()
    assert_same(results[1], results[0])


class OfNumbers(nn.Module):
    """A leaf of numbers, in a method that asks for no gradient itself."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        factors = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
        return factors, (factors**2 * x).sum()


@pytest.mark.parametrize("needs_grad", [False, True], ids=["plain", "needs_grad"])
def test_a_returned_leaf_of_numbers(needs_grad: bool) -> None:
    eager = OfNumbers()
    lowered = lowered_copy(eager, "all")
    results = []
    for module in (eager, lowered):
        x = torch.linspace(1, 2, 3, requires_grad=needs_grad)
        factors, result = module(x)
        result.backward()
        results.append([factors, result, factors.grad, x.grad])
    assert_same(results[1], results[0])


def tensors_of(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    elements = outputs.values() if isinstance(outputs, dict) else outputs
    return [tensor for each in elements for tensor in tensors_of(each)]


@pytest.mark.parametrize("needs_grad", [False, True], ids=["plain", "needs_grad"])
@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("model", [*ONE_REGION, *SEVERAL_REGIONS], ids=lambda model: model.__name__)
def test_gradients_of_a_returned_leaf(model: type[nn.Module], strategy: str, needs_grad: bool) -> None:
    torch.manual_seed(0)
    eager = model()
    lowered = lowered_copy(eager, strategy)
    x = torch.rand(5, 4)
    for size in (5, 5, 3):
        results, kinds = [], []
        for module in (eager, lowered):
            torch.manual_seed(1)
            module.zero_grad()
            argument = x[:size].clone().requires_grad_(needs_grad)
            outputs = tensors_of(module(argument))
            for output in outputs:
                if not output.is_leaf:
                    output.retain_grad()
            sum((output.square().sum() for output in outputs), torch.zeros([])).backward()
            kinds.append([(each.requires_grad, each.is_leaf, each._is_view()) for each in outputs])
            of_parameters = [parameter.grad for parameter in module.parameters()]
            results.append([*outputs, *(each.grad for each in outputs), argument.grad, *of_parameters])
        assert kinds[0] == kinds[1]
        if model in ONE_REGION:
            assert_same(results[1], results[0])
        else:  # autograd adds the gradients of several regions in the order in which they end
            torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-6)


@pytest.mark.lowered_only
@pytest.mark.parametrize("model", ONE_REGION, ids=lambda model: model.__name__)
def test_a_method_that_returns_a_leaf_is_one_region(model: type[nn.Module]) -> None:
    lowered = lowered_copy(model(), "all")
    lowered(torch.rand(5, 4))
    specialisation = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]
    assert (len(specialisation["regions"]), specialisation["breaks"]) == (1, [])


class State(nn.Module):
    """Truncated backpropagation through time: the method asks for no gradient itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        loss = torch.zeros([], dtype=x.dtype)
        for i in range(x.size(0)):
            if i == 2:
                state = state.detach().requires_grad_()
            state = torch.tanh(state @ self.weight + x[i])
            loss = loss + state.square().sum()
        return loss, state.detach().requires_grad_()


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_a_state_that_the_next_call_begins_with(strategy: str) -> None:
    torch.manual_seed(0)
    eager = State()
    x = torch.rand(3, 4, 4)
    results = []
    for module in (eager, lowered_copy(eager, strategy)):
        state = torch.zeros(4)
        states, losses = [], []
        for inputs in x:
            loss, state = module(inputs, state)
            states.append(state)
            losses.append(loss)
        # The last state has no reader.
        wanted = [*states[:-1], *module.parameters()]
        results.append([*losses, *states, *torch.autograd.grad(sum(losses, torch.zeros([])), wanted)])
    assert_same(results[1], results[0])


@pytest.mark.lowered_only
def test_a_method_that_hands_on_a_state_is_one_region() -> None:
    lowered = lowered_copy(State(), "all")
    lowered(torch.rand(4, 4), torch.zeros(4))
    (specialisation,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert (len(specialisation["regions"]), specialisation["breaks"]) == (1, [])


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("model", [Copy, Computed], ids=lambda model: model.__name__)
def test_a_write_to_a_returned_leaf_is_noticed(model: type[nn.Module], strategy: str) -> None:
    lowered = lowered_copy(model(), strategy)
    positions, energy, _ = lowered(torch.rand(5, 4))
    with torch.no_grad():
        positions.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        energy.backward()


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("model", [Copy, Computed, State], ids=lambda model: model.__name__)
def test_a_returned_leaf_without_gradients(model: type[nn.Module], strategy: str) -> None:
    eager = model().requires_grad_(False)
    arguments = [torch.rand(4, 4), torch.zeros(4)][: 2 if model is State else 1]
    results, kinds = [], []
    for module in (eager, lowered_copy(eager, strategy)):
        outputs = module(*arguments)
        kinds.append([(output.requires_grad, output.is_leaf) for output in outputs])
        results.append(list(outputs))
    assert kinds[1] == kinds[0]
    assert_same(results[1], results[0])


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_hooks_and_steps_of_a_returned_leaf(strategy: str) -> None:
    torch.manual_seed(0)
    eager = Computed()
    results = []
    for module in (eager, lowered_copy(eager, strategy)):
        seen: list[Tensor] = []
        positions, energy, force = module(torch.linspace(0, 1, 20).view(5, 4))
        positions.register_hook(lambda gradient, seen=seen: seen.append(gradient.clone()))
        (energy + force.square().sum()).backward()
        torch.optim.SGD([positions], lr=0.1).step()
        results.append([*seen, positions.grad, positions.detach()])
    assert len(results[0]) == 3
    assert_same(results[1], results[0])
