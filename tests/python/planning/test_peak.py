"""The measured peak of one step: deterministic, so it is asserted."""

import pytest
import torch

import aten_recompute
from benchmarks import models

from support.helpers import scripted_copy


def peak_bytes(workload: models.Workload, module: torch.nn.Module, tracker) -> int:
    """Peak above rest of one step with no gradients allocated before it, in bytes."""
    workload.step(module)
    module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        workload.step(module)
    return peak.bytes


@pytest.fixture(scope="module")
def eager_peaks() -> dict:
    return {}


@pytest.mark.parametrize(
    ("name", "strategy", "limit"),
    [
        ("gpt", "none", 1.0),
        ("gpt", "segments", 0.25),
        ("gpt", "all", 0.25),
        ("resnet50", "none", 1.05),
        ("resnet50", "segments", 0.60),
        ("mlp", "none", 1.05),
        # Ten activations of 16 MiB each; three segments keep two of them and bring back at most four,
        # and the gradients of the last segment's weights and data come on top.
        ("mlp", "segments", 0.70),
        # Eager's loss holds a tensor of 16 MiB behind its scalar; ours holds a number.
        ("mlp_loss", "none", 0.94),
    ],
)
def test_peak(name: str, strategy: str, limit: float, tracker, eager_peaks: dict) -> None:
    workload = models.make(name)
    if name not in eager_peaks:
        eager_peaks[name] = peak_bytes(workload, workload.module, tracker)
    lowered = aten_recompute.lower(scripted_copy(workload.module), strategy)
    assert peak_bytes(workload, lowered, tracker) <= limit * eager_peaks[name]


def test_peak_on_the_plain_route(tracker, eager_peaks: dict) -> None:
    """Nothing of ours but the loaded library."""
    workload = models.make("gpt")
    if "gpt" not in eager_peaks:
        eager_peaks["gpt"] = peak_bytes(workload, workload.module, tracker)
    scripted = scripted_copy(workload.module)
    lowered = torch._C._jit_to_backend("aten_recompute", scripted, {"forward": '{"strategy": "segments"}'})
    workload.step(lowered)
    scripted.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        workload.loss(lowered).backward()
    assert all(p.grad is not None for p in scripted.parameters())
    assert peak.bytes <= 0.25 * eager_peaks["gpt"]


def test_nothing_stays_after_a_step(tracker) -> None:
    """After backward and with gradients freed, live memory is what it was before the step."""
    workload = models.make("gpt", size="small")
    lowered = aten_recompute.lower(scripted_copy(workload.module), "segments")
    workload.step(lowered)
    lowered.zero_grad(set_to_none=True)
    before = tracker.live_bytes
    for _ in range(3):
        workload.step(lowered)
        lowered.zero_grad(set_to_none=True)
    assert tracker.live_bytes == before
