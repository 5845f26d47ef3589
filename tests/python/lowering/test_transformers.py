"""Architectures of Hugging Face transformers have eager's gradients, no operator on the tape, and a smaller peak."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from support.helpers import assert_same

pytest.importorskip("transformers", reason="the architectures are those of Hugging Face transformers")

from support import architectures

# The warnings are about values that a trace takes for constants; they are constant here.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")


def _step(module: nn.Module, owner: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor | None]:
    owner.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    output = module(*inputs)
    output.square().sum().backward()
    return [output.detach(), *[p.grad for p in owner.parameters()], torch.get_rng_state()]


@pytest.mark.parametrize(("name", "attention"), architectures.KINDS)
def test_gradients_equal_eager_and_nothing_is_on_the_tape(name: str, attention: str) -> None:
    model, inputs = architectures.make(name, attention)
    traced = architectures.trace(model, inputs)
    expected = _step(model, model, inputs)
    for strategy in ("none", "all", "segments"):
        lowered = aten_recompute.lower(traced, strategy)
        assert_same(_step(lowered, model, inputs), expected)
        for specialization in aten_recompute.report(lowered)["methods"][0]["specialisations"]:
            for region in specialization["regions"]:
                assert [variant["on_tape"] for variant in region["variants"]] == [[]]


def _called(model: nn.Module, inputs: tuple[Tensor, ...]) -> "Counter[str]":
    """Counts the runs of PyTorch's layers that are one ATen operator each, by operator."""
    operators: dict[type[nn.Module], str] = {
        nn.Linear: "aten::linear",
        nn.LayerNorm: "aten::layer_norm",
        nn.Conv2d: "aten::conv2d",
    }
    calls: Counter[str] = Counter()

    def count(operator: str, *_: Any) -> None:
        calls.update([operator])

    handles = [
        module.register_forward_hook(partial(count, operator))
        for kind, operator in operators.items()
        for module in model.modules()
        if isinstance(module, kind)
    ]
    model(*inputs)
    for handle in handles:
        handle.remove()
    return calls


@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_the_report_counts_every_operator_once(name: str) -> None:
    model, inputs = architectures.make(name)
    calls = _called(model, inputs)
    lowered = aten_recompute.lower(architectures.trace(model, inputs), "none")
    found = architectures.gradients_of(lowered, lowered(*inputs))
    assert sum(calls.values()) > 0
    assert {operator: found.by["rule"][operator] for operator in calls} == dict(calls)
    assert not found.by["user_rule"]
    assert not found.by["tape"]
    assert sum(found.around.values()) <= 1  # a view that is returned


@pytest.mark.parametrize(
    ("name", "limit"),
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
def test_segments_lower_the_peak(name: str, limit: float, tracker: Tracker) -> None:
    model, inputs = architectures.make(name, layers=8)

    def peak(module: nn.Module) -> int:
        _step(module, model, inputs)
        model.zero_grad(set_to_none=True)
        with tracker.measure_peak() as measured:
            _step(module, model, inputs)
        return measured.bytes

    traced = architectures.trace(model, inputs)
    eager = peak(model)
    assert peak(aten_recompute.lower(traced, "segments")) <= limit * eager
