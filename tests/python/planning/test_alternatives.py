"""Plans choose among alternatives for the same gradient: masks as bits, statistics of a batch norm, and others."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aten_recompute._report_types import Variant
from support.helpers import assert_same, lowered_copy, only_variant

ROWS, WIDTH, BRANCHES = 256, 256, 8
VALUES = ROWS * WIDTH  # elements of one activation


class Rectified(nn.Module):
    """Only the gradients of the relus read the activations, for which their signs are sufficient."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(BRANCHES)])

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(1)
        for layer in self.layers:
            total = total + torch.relu((layer(x) + 1.0) * 2.0).sum()
        return total


class Dropped(nn.Module):
    """Has dropout between products; a mask can be kept as bools, kept as bits, or drawn again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(BRANCHES)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.dropout(layer(x), 0.5, self.training)
        return x.sum()


class Normalized(nn.Module):
    """Has a batch norm before each relu."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(BRANCHES)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH) for _ in range(BRANCHES)])

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms):  # noqa: B905  (TorchScript's zip has no strict)
            x = torch.relu(norm(layer(x)))
        return x.sum()


def trained(eager: nn.Module, **options: Any) -> Variant:
    """Runs a step, asserts that results, gradients and buffers equal eager, and returns the report."""
    lowered = lowered_copy(eager, "budget", cost_model="flops", **options)
    x = torch.randn(ROWS, WIDTH)
    gradients: list[list[Tensor | None]] = []
    for module in (eager, lowered):
        torch.manual_seed(3)
        module.zero_grad(set_to_none=True)
        loss = module(x)
        loss.backward()
        results = [loss.detach(), *(p.grad for p in module.parameters()), *module.buffers(), torch.get_rng_state()]
        gradients.append(results)
    assert_same(gradients[1], gradients[0])
    return only_variant(lowered)


def test_plans_keep_signs_in_place_of_activations() -> None:
    """The signs take a thirty-second of the memory of floats, and no product is recomputed."""
    unplanned = trained(Rectified(), memory_budget=1.0, accumulate=True)
    planned = trained(Rectified(), memory_budget=0.3, accumulate=True)
    assert unplanned["predicted_saved_bytes"] >= BRANCHES * 4 * VALUES
    signs = [name for name in planned["saved"] if name.endswith("_sign")]
    assert len(signs) >= BRANCHES - 1
    assert not [name for name in planned["recomputed"] if "linear" in name]
    kept_as_floats = BRANCHES - len(signs)
    assert planned["predicted_saved_bytes"] <= kept_as_floats * 4 * VALUES + len(signs) * VALUES // 8 + 1024


@pytest.mark.parametrize("budget", [0.9, 0.7, 0.5])
@pytest.mark.parametrize("make", [Dropped, Normalized])
def test_gradients_equal_eager_and_the_budget_is_kept(make: Any, budget: float) -> None:
    planned = trained(make(), memory_budget=budget, accumulate=True)
    assert planned["predicted_peak_bytes"] <= budget * planned["unplanned_peak_bytes"]


def test_plans_keep_dropout_masks_as_bits() -> None:
    planned = trained(Dropped(), memory_budget=0.6, accumulate=True)
    assert [name for name in planned["saved"] if name.endswith("_bits")]
