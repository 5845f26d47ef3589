"""Results that a method detaches: no gradient comes for them, so nothing is saved for one."""

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy


class Detached(nn.Module):
    """Only the second part is trained. The first one is returned, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.linspace(0.1, 1, 4))
        self.second = nn.Parameter(torch.linspace(0.5, 2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = (x * self.first).exp().sin().exp().detach()
        return hidden, torch.tanh(hidden * self.second).sum()


class DetachedTwice(Detached):
    """A view and another name of what is detached are returned, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = (x * self.first).exp()
        return hidden.detach(), hidden.detach().t(), torch.tanh(hidden * self.second).sum()


class WithHistory(Detached):
    """What is detached is returned as it is, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = (x * self.first).exp()
        return hidden.detach(), hidden, torch.tanh(hidden * self.second).sum()


class Written(Detached):
    """The method returns a copy of what it has detached, to which it has written."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = (x * self.first).exp()
        detached = hidden.detach()
        loss = torch.tanh(detached * self.second).sum()
        return detached.clone().mul_(2), loss


MODELS = [Detached, DetachedTwice, WithHistory, Written]


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_detached_results_are_those_of_eager(model: type[nn.Module], strategy: str) -> None:
    eager = model()
    results, kinds = [], []
    for module in (eager, lowered_copy(eager, strategy)):
        *others, loss = module(torch.linspace(0, 1, 20).view(5, 4))
        loss = loss + sum((other.sum() for other in others if other.requires_grad), torch.zeros([]))
        kinds.append([(each.requires_grad, each.is_leaf, each._is_view()) for each in others])
        wanted = list(module.parameters())
        results.append([*others, *torch.autograd.grad(loss, wanted, allow_unused=True)])
    assert kinds[1] == kinds[0]
    assert_same(results[1], results[0])


@pytest.mark.lowered_only
def test_nothing_is_saved_for_a_detached_result() -> None:
    lowered = lowered_copy(Detached(), "none")
    lowered(torch.rand(5, 4))
    (region,) = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]
    # What the second part reads. A gradient of the first part would read the first exponential, too.
    assert region["variants"][0]["saved"] == ["exp_1", "tanh_0"]


@pytest.mark.parametrize("strategy", ["none", "all"])
@pytest.mark.parametrize("model", [Detached, DetachedTwice, WithHistory], ids=lambda model: model.__name__)
def test_a_write_to_a_detached_result_is_noticed(model: type[nn.Module], strategy: str) -> None:
    lowered = lowered_copy(model(), strategy)
    *others, loss = lowered(torch.rand(5, 4))
    with torch.no_grad():
        others[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
