"""Functions that most tests of lowered modules use."""

import copy
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute._report_types import Variant

STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "all": {"strategy": "all"},
    "names": {"strategy": "names", "keywords": ["relu", "linear", "norm"]},
    "layers": {"strategy": "layers", "start": 0, "stride": 2},
    "layers_ratio": {"strategy": "layers", "ratio": 0.5},
    "ops": {"strategy": "ops", "ops": ["relu", "gelu", "softmax"]},
    "segments": {"strategy": "segments"},
    "segments_2": {"strategy": "segments", "count": 2},
    "1": {"1": None},
    "2": {"2": ["%relu"]},
    "3": {"3": [0, 2]},
    "4": {"4": 0.5},
    "5": {"5": ["relu"]},
}


def scripted_copy(module: nn.Module) -> torch.jit.ScriptModule:
    return torch.jit.script(copy.deepcopy(module))


def lowered_copy(module: nn.Module, strategy: Any = None, **options: Any) -> torch.jit.ScriptModule:
    """Returns a lowered module with its own copy of the parameters."""
    return aten_recompute.lower(scripted_copy(module), strategy, **options)


def to_backend(module: torch.jit.ScriptModule, spec: Any) -> torch.jit.ScriptModule:
    """Lowers the method ``forward`` by PyTorch's own function for backends."""
    lowered: torch.jit.ScriptModule = torch._C._jit_to_backend(  # type: ignore[attr-defined]
        "aten_recompute", module, {"forward": spec}
    )
    return lowered


def saved_and_loaded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def tensors_in(value: Any) -> list[Tensor]:
    """Returns the tensors of a nested result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for key in sorted(value) for t in tensors_in(value[key])]
    if isinstance(value, (list, tuple)):
        return [t for element in value for t in tensors_in(element)]
    return []


def step(
    module: Callable[..., Any], parameters: list[Tensor], inputs: tuple[Any, ...], seed: int = 7
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Runs one forward and backward from a fixed seed; returns the outputs and the gradients of the parameters."""
    for parameter in parameters:
        parameter.grad = None
    torch.manual_seed(seed)
    outputs = tensors_in(module(*inputs))
    sum((output * output).sum() for output in outputs if output.requires_grad).backward()
    return [o.detach() for o in outputs], [p.grad for p in parameters]


def assert_same(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> None:
    """Asserts that the tensors are equal to the bit, and that None stands at the same places."""
    assert len(a) == len(b)
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        assert (left is None) == (right is None), f"tensor {index}: one of the two is None"
        if left is not None and right is not None:
            assert left.dtype == right.dtype
            assert left.shape == right.shape
            assert torch.equal(left, right), f"tensor {index} differs by up to {(left - right).abs().max().item():.3g}"


def only_variant(lowered: torch.jit.ScriptModule) -> Variant:
    """Returns the report of the only variant of the only region."""
    (specialization,) = aten_recompute.report(lowered)["methods"][0]["specialisations"]
    (region,) = specialization["regions"]
    (compiled,) = region["variants"]
    return compiled


def num_regions(lowered: torch.jit.ScriptModule, method: int = 0) -> list[int]:
    """Returns the number of regions in each specialization of a method."""
    report = aten_recompute.report(lowered)["methods"][method]
    return [len(each["regions"]) for each in report["specialisations"]]


def num_compiled(planned: Any) -> int:
    """Returns the number of compiled variants of all regions of a lowered or enabled module or function."""
    methods = aten_recompute.report(planned)["methods"]
    return sum(len(region["variants"]) for m in methods for s in m["specialisations"] for region in s["regions"])
