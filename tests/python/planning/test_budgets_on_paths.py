"""A budget covers the whole path of a call: across branches, loops and containers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy
from support.several_regions import Broken, Looping, peak_bytes, rows


class CellOverTime(nn.Module):
    """A cell in a loop over time, whose states are kept in a list, with a branch on the place."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h, c = torch.zeros(x.size(0), 64), torch.zeros(x.size(0), 64)
        states: list[Tensor] = []
        for t in range(x.size(1)):
            step = x[:, t]
            if t % 3 == 0:
                step = torch.tanh(step) * 1.5
            h, c = self.cell(step, (h, c))
            states.append(torch.relu(h * 2.0))
        return torch.stack(states).pow(2).mean()


class DictOfFeatures(nn.Module):
    """Layers that read and write a dict, as models of molecules do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        features = {"x": x}
        for layer in self.layers:
            y = torch.tanh(layer(features["x"]))
            if y.size(0) > 1:
                features["last"] = y
            features["x"] = features["last"] * torch.sigmoid(y)
        return features["x"].sum()


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "branch_on_data": (Broken, rows),
    "loop": (Looping, rows),
    "cell_over_time": (CellOverTime, lambda: torch.randn(256, 12, 64)),
    "dict_of_features": (DictOfFeatures, lambda: torch.randn(2000, 64)),
}


@pytest.mark.parametrize("name", CASES)
def test_half_of_the_memory_is_kept(name: str, tracker: Tracker) -> None:
    make, inputs = CASES[name]
    eager, x = make(), inputs()
    lowered = lowered_copy(eager, "budget", memory_budget=0.5, accumulate=True)
    measured = peak_bytes(lowered, x, tracker, accumulate=True)
    assert measured <= 0.5 * peak_bytes(lowered_copy(eager, "none"), x, tracker, accumulate=True)
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (region,) = specialization["regions"]
    variant = region["variants"][-1]
    assert not variant["on_tape"]
    assert variant["predicted_peak_bytes"] == pytest.approx(measured, rel=0.03)
    for module in (eager, lowered):
        module.zero_grad(set_to_none=True)
        module(x).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
