"""Training on forces without recomputation takes no more memory than eager PyTorch, whatever the activation is."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1) * x


class Forces(nn.Module):
    def __init__(self, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(3, 64)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), activation()) for _ in range(4)])
        self.last = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.requires_grad_(True)
        y = self.first(x)
        for layer in self.layers:
            y = y + layer(y)
        energy = self.last(y).sum()
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        return energy, -gradient


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.PReLU, nn.GELU, nn.ELU, nn.Hardswish, nn.SiLU, nn.Tanh, Softmax],
)
def test_no_recomputation_takes_no_more_than_eager(
    activation: Callable[[], nn.Module], tracker: Tracker, one_thread: None
) -> None:
    torch.manual_seed(0)
    eager, x = Forces(activation), torch.randn(4000, 3)
    lowered = aten_recompute.lower(torch.jit.script(copy.deepcopy(eager)), "none")

    def peak(module: nn.Module) -> int:
        module.zero_grad(set_to_none=True)
        given = x.clone()
        with tracker.measure_peak() as measured:
            energy, forces = module(given)
            (energy.square() + forces.square().mean()).backward()
        return measured.bytes

    of_eager = [peak(eager) for _ in range(2)][-1]
    assert max(peak(lowered) for _ in range(3)) <= of_eager
    expected = dict(eager.named_parameters())
    assert_same([p.grad for p in lowered.parameters()], [expected[name].grad for name, _ in lowered.named_parameters()])
    [region] = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]
    assert region["variants"][0]["on_tape"] == []
