"""Strategy budget: what is measured stays within what was asked for, and is what was predicted."""

import re
from typing import Any, Dict, List, Optional

import pytest
import torch
from helpers import assert_same, lowered_copy, num_regions

import aten_recompute
from benchmarks import models

MODELS = ["gpt", "resnet50", "mlp", "transformer"]
# Where between the smallest peak that can be reached and that of keeping everything.
PLACES = [0.0, 0.1, 0.3, 0.6, 0.9]


def variant(lowered: torch.jit.ScriptModule) -> Dict[str, Any]:
    """What the only region's only compilation says of itself."""
    (specialisation,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (region,) = specialisation["regions"]
    (compiled,) = region["variants"]
    return compiled


def lowered_with(workload: models.Workload, **options: Any) -> torch.jit.ScriptModule:
    """Lowered under a budget and compiled. The costs are the FLOP model's: the same in every run."""
    lowered = lowered_copy(workload.module, "budget", cost_model="flops", **options)
    workload.step(lowered)
    return lowered


def smallest_peak(workload: models.Workload, **options: Any) -> float:
    """What the error for a budget that cannot be kept names, in bytes: rounded to 0.1 MiB, so exactly from `fraction`."""
    with pytest.raises(RuntimeError, match="smallest that can be reached") as raised:
        lowered_with(workload, memory_budget=1e-6, **options)
    share = re.search(r"reached is [\d.]+ MiB \(([\d.e-]+) of", str(raised.value))
    assert share is not None
    return float(share.group(1))


def measured_peak(workload: models.Workload, module: torch.jit.ScriptModule, accumulate: bool, tracker) -> int:
    """Peak above rest of one step. Gradients rest where they are accumulated, and are made anew otherwise."""
    workload.step(module)
    if not accumulate:
        module.zero_grad(set_to_none=True)
    with tracker.measure_peak() as peak:
        workload.loss(module).backward()
    return peak.bytes
