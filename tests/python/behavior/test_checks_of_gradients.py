"""A method may check the gradients that it asks for, and raise."""

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy


class Checked(nn.Module):
    """Zeros, which stand for the gradient while the path of a call is recorded, would not pass the check."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, 4))

    def forward(self, x: Tensor) -> Tensor:
        positions = x.detach().clone().requires_grad_(True)
        energy = (torch.sin(positions) * self.weight).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        assert bool((force != 0).any()), "all forces are zero"
        return force * 2


class Refused(Checked):
    """The check is an `if` that raises, on two properties of the gradient."""

    def forward(self, x: Tensor) -> Tensor:
        positions = x.detach().clone().requires_grad_(True)
        energy = (torch.sin(positions) * self.weight).sum()
        force = torch.autograd.grad([energy], [positions], create_graph=True)[0]
        assert force is not None
        if not bool(torch.isfinite(force).all()) or bool((force == 0).all()):
            raise RuntimeError("the forces are no numbers, or all zero")
        return torch.tanh(force)


MODELS = [Checked, Refused]


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_gradients_that_pass_a_check(model: type[Checked], strategy: str) -> None:
    eager = model()
    results = []
    for module in (eager, lowered_copy(eager, strategy)):
        force = module(torch.linspace(0, 1, 20).view(5, 4))
        results.append([force, *torch.autograd.grad(force.square().sum(), list(module.parameters()))])
    assert_same(results[1], results[0])


@pytest.mark.lowered_only
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_method_that_checks_gradients_is_one_region(model: type[Checked]) -> None:
    lowered = lowered_copy(model(), "all")
    for size in (5, 5, 3):
        lowered(torch.rand(size, 4))
    specialisations = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    assert [(len(each["regions"]), each["breaks"]) for each in specialisations] == [(1, [])]


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_check_that_fails_raises(model: type[Checked], first: bool) -> None:
    lowered = lowered_copy(model(), "all")
    x = torch.full((5, 4), torch.pi / 2, dtype=torch.float64)  # whose cosine is not zero to the last bit
    if not first:
        lowered(x)
    with torch.no_grad():
        lowered.weight.zero_()
    with pytest.raises(torch.jit.Error, match="zero"):
        lowered(x)
    with torch.no_grad():
        lowered.weight.fill_(1)
    torch.autograd.grad(lowered(x).sum(), list(lowered.parameters()))
