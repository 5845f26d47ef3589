"""What training holds between steps: buckets and the state of optimizers (held_bytes)."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute

Make = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "foreach": lambda p: torch.optim.Adam(p, foreach=True),
    "adafactor": torch.optim.Adafactor,
    "nadam": torch.optim.NAdam,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "radam": torch.optim.RAdam,
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(self.third(torch.tanh(self.second(torch.tanh(self.first(x))))))


def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    net(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    values = [value for each in optimizer.state.values() for value in each.values()]
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_is_known_before_its_first_step(name: str) -> None:
    net = Net()
    optimizer = OPTIMIZERS[name]([{"params": net.first.parameters()}, {"params": net.second.parameters()}])
    before = aten_recompute.held_bytes(net, optimizer=optimizer)
    parameters = [p.clone() for p in net.parameters()]
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), parameters, strict=True))
    assert all(p.grad is None for p in net.parameters())
    step(net, optimizer)
    assert before == state_bytes(optimizer)
    assert before == aten_recompute.held_bytes(net, optimizer=optimizer)
    assert (before > 0) == (name != "sgd")


def test_hooks_of_an_optimizer_are_not_called() -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    assert aten_recompute.held_bytes(net, optimizer=optimizer) > 0
    assert calls == []


def test_buckets_are_as_large_as_the_parameters_that_require_grad() -> None:
    net = Net()
    expected = 4 * sum(p.numel() for p in net.parameters() if p.requires_grad)
    assert aten_recompute.held_bytes(net) == 0
    assert aten_recompute.held_bytes(net, buckets=True) == expected
    net.second.weight = nn.Parameter(net.second.weight.detach().bfloat16())
    assert aten_recompute.held_bytes(net, buckets=True) == expected - 2 * 32 * 32
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9, lr=0.1)
    assert aten_recompute.held_bytes(net, buckets=True, optimizer=optimizer) == 2 * (expected - 2 * 32 * 32)


def test_a_parameter_of_two_layers_counts_once() -> None:
    net = Net()
    whole = aten_recompute.held_bytes(net, buckets=True)
    net.third.weight = nn.Parameter(net.first.weight.detach().t())
    assert aten_recompute.held_bytes(net, buckets=True) == whole - 4 * 16 * 32


def test_lowered_modules_and_their_optimizers_count_alike() -> None:
    net = Net()
    lowered = aten_recompute.lower(torch.jit.script(net), "budget", memory_budget=0.5)
    ours = aten_recompute.held_bytes(lowered, buckets=True, optimizer=torch.optim.Adam(lowered.parameters()))
    assert ours == aten_recompute.held_bytes(net, buckets=True, optimizer=torch.optim.Adam(net.parameters()))


def test_an_optimizer_that_needs_a_closure_is_refused_before_its_first_step() -> None:
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters())
    with pytest.raises(RuntimeError, match=r"^aten_recompute: the state of LBFGS is not known before its first step"):
        aten_recompute.held_bytes(net, optimizer=optimizer)
    assert not optimizer.state
