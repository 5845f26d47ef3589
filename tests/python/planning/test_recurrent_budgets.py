"""Recurrent networks keep a budget, which is met by computing the steps of one layer again at a time."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same, lowered_copy
from support.several_regions import peak_bytes, step

WORDS = 1000


class LanguageModel(nn.Module):
    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 128)
        self.recurrent = layer(128, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(tokens[:, :-1]))
        return F.cross_entropy(self.head(states).flatten(0, 1), tokens[:, 1:].flatten())


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU], ids=["lstm", "gru"])
def test_a_language_model_trains_in_half_of_eagers_memory(layer: type[nn.Module], tracker: Tracker) -> None:
    eager = LanguageModel(layer)
    tokens = torch.randint(0, WORDS, (16, 65))
    half = peak_bytes(eager, tokens, tracker, accumulate=True) // 2
    lowered = lowered_copy(eager, "budget", memory_budget=half, accumulate=True)
    # The second call plans again with what the first backward has shown, and profiles in memory of its own.
    step(lowered, tokens)
    measured = peak_bytes(lowered, tokens, tracker, accumulate=True)
    assert measured <= half
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (region,) = specialization["regions"]
    variant = region["variants"][-1]
    assert not variant["on_tape"]
    assert any("_layer" in name for name in variant["recomputed"])
    assert variant["predicted_peak_bytes"] == pytest.approx(measured, rel=0.03)
    for module in (eager, lowered):
        module.zero_grad(set_to_none=True)
        module(tokens).backward()
    assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
