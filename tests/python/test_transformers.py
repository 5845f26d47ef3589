"""Architectures of Hugging Face transformers: eager's gradients, no operator on the tape, a smaller peak."""

from typing import List, Optional

import pytest
import torch
from helpers import assert_same
from torch import Tensor, nn

import aten_recompute

pytest.importorskip("transformers", reason="the architectures are those of Hugging Face transformers")

import architectures  # noqa: E402

# What a trace takes for constant is constant here.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

KINDS = [
    (name, attention)
    for name in architectures.ARCHITECTURES
    for attention in (("eager",) if name == "convnext" else ("eager", "sdpa"))
]


def _step(module: nn.Module, owner: nn.Module, inputs: List[Tensor]) -> List[Optional[Tensor]]:
    owner.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    output = module(*inputs)
    output.square().sum().backward()
    return [output.detach(), *[p.grad for p in owner.parameters()], torch.get_rng_state()]


def _traced(module: nn.Module, inputs: List[Tensor]) -> torch.jit.ScriptModule:
    return torch.jit.trace(module, tuple(inputs), check_trace=False, strict=False)


@pytest.mark.parametrize("name, attention", KINDS)
def test_gradients_are_eagers(name: str, attention: str) -> None:
    model, inputs = architectures.make(name, attention)
    traced = _traced(model, inputs)
    expected = _step(model, model, inputs)
    for strategy in ("none", "all", "segments"):
        lowered = aten_recompute.lower(traced, strategy)
        assert_same(_step(lowered, model, inputs), expected)
        for specialisation in aten_recompute.report(lowered)["methods"][0]["specialisations"]:
            for region in specialisation["regions"]:
                assert [variant["on_tape"] for variant in region["variants"]] == [[]]


@pytest.mark.parametrize(
    "name, limit",
    [
        ("gpt2", 0.5),
        ("bert", 0.6),
        ("vit", 0.8),
        ("t5", 0.6),
        ("llama", 0.6),
        ("convnext", 0.9),
        ("swin", 0.6),
        ("whisper", 0.5),
    ],
)
def test_segments_lower_the_peak(name: str, limit: float, tracker) -> None:
    model, inputs = architectures.make(name, layers=8)

    def peak(module: nn.Module) -> int:
        _step(module, model, inputs)
        model.zero_grad(set_to_none=True)
        with tracker.measure_peak() as measured:
            _step(module, model, inputs)
        return measured.bytes

    traced = _traced(model, inputs)
    eager = peak(model)
    assert peak(aten_recompute.lower(traced, "segments")) <= limit * eager
