"""Runs one case in eager, traced and lowered; reports the result and how the gradient was made."""

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import aten_recompute

from . import numerical, second_order
from .cases import Entry, Sample

STRATEGIES = ("none", "all")

# The possible results of a sample; table.FINE has those that are no failure.
SAME = "same as eager"
BOTH_RAISE = "raises in eager and in ours"
NOTHING = "no gradient in eager"
NOT_TRACED = "PyTorch cannot trace it"
TRACE_DIFFERS = "PyTorch's trace differs from eager"
RANDOM = "eager differs from itself"
UNORDERED = "rounded otherwise, as eager is from run to run"  # kernels for GPUs add in any order
DIFFERS = "differs"
WRONG_IN_EAGER = "gradcheck refuses eager, too"


# How often eager runs again, to see whether it differs from itself.
RUNS = {"cpu": 1, "cuda": 8}


@dataclass
class Run:
    """The results of one forward and backward: tensors, or an error."""

    tensors: list[Tensor | None] = field(default_factory=list)
    second: list[Tensor | None] = field(default_factory=list)  # second derivatives
    error: Exception | None = None
    history: set[str] = field(default_factory=set)  # autograd nodes behind the outputs
    has_gradient: bool = False


@dataclass
class Outcome:
    """The result of one sample."""

    result: str
    how: set[str] = field(default_factory=set)  # "rule", "tape: ...", "autograd: ..."
    detail: str = ""


def _history(outputs: list[Tensor]) -> set[str]:
    names: set[str] = set()
    pending = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(pending)
    while pending:
        node = pending.pop()
        names.add(node.name())
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return names


@dataclass(frozen=True)
class Mode:
    """How a sample runs."""

    order: int = 1  # 2: the backward is differentiated as well
    autocast: torch.dtype | None = None  # the type of lower precision; None: autocast is off
    numerical: bool = False  # gradcheck judges, instead of eager
    device: str = "cpu"


def _random_states(device: str) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]


def run(function: Callable[..., Any], module: nn.Module, sample: Sample, mode: Mode) -> Run:
    """Runs one forward and backward from a fixed seed, and returns outputs, gradients, buffers and random state."""
    result = Run()
    torch.manual_seed(7)
    try:
        with torch.autocast(mode.device, dtype=mode.autocast, enabled=mode.autocast is not None):
            outputs = list(function(*sample.tensors))
        result.history = _history([output for output in outputs if output.requires_grad])
        if sample.process is not None:
            outputs = pytree.tree_leaves(sample.process(outputs[0] if len(outputs) == 1 else outputs))
        differentiable = [output for output in outputs if output.requires_grad]
        inputs = [t for t in [*sample.tensors, *module.parameters()] if t.requires_grad]
        generator = torch.Generator().manual_seed(8)
        cotangents = [second_order.random_like(output.detach(), generator) for output in differentiable]
        gradients: list[Tensor | None] = []
        if differentiable and mode.order == 2:
            gradients, result.second = second_order.derivatives(differentiable, inputs, cotangents, generator)
        elif differentiable:
            gradients = list(torch.autograd.grad(differentiable, inputs, cotangents, allow_unused=True))
        result.has_gradient = any(gradient is not None for gradient in gradients)
        needs = torch.tensor([output.requires_grad for output in outputs])
        result.tensors = [o.detach() for o in outputs] + [needs] + gradients
        result.tensors += [buffer.clone() for buffer in module.buffers()] + _random_states(mode.device)
    except Exception as error:  # ours has to raise whenever eager does
        result.error = error
    return result


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.is_quantized:
        a, b = a.dequantize(), b.dequantize()
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if os.environ.get("RECOMPUTE_SLICES") == "always" and a.is_floating_point():
        return torch.allclose(
            a, b, 1e-9, 1e-9 * float(b.nan_to_num().abs().max()) if b.numel() else 0.0, equal_nan=True
        )
    return bool(torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num()))


def _first_line(error: Exception) -> str:
    """Returns the message of an error without its place in TorchScript."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and "TorchScript" not in line]
    return (said or [repr(error)])[0][:200]


def _largest_difference(a: Tensor, b: Tensor) -> float:
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if not a.is_complex():
        a, b = a.double(), b.double()
    return (a - b).abs().max().item()


def difference(actual: Run, expected: Run, up_to_rounding: bool = False) -> str:
    """Describes the first difference; returns an empty string if there is none."""
    if actual.error is not None and expected.error is None:
        return f"only this raises {type(actual.error).__name__}: {_first_line(actual.error)}"
    if actual.error is None and expected.error is not None:
        return f"only eager raises {type(expected.error).__name__}: {_first_line(expected.error)}"
    if expected.error is not None:
        return ""
    if len(actual.tensors) != len(expected.tensors):
        return f"{len(actual.tensors)} tensors in place of {len(expected.tensors)}"
    for index, (a, b) in enumerate(zip(actual.tensors, expected.tensors, strict=True)):
        where = f"tensor {index} of {len(expected.tensors)}: "
        if (a is None) != (b is None):
            return where + ("None" if a is None else "not None")
        if a is None or b is None:
            continue
        if a.dtype != b.dtype or a.shape != b.shape or a.layout != b.layout:
            return where + f"{a.dtype} {list(a.shape)} {a.layout} in place of {b.dtype} {list(b.shape)} {b.layout}"
        if not _equal(a, b) and not (up_to_rounding and second_order.is_rounded(a, b)):
            return where + f"differs by up to {_largest_difference(a, b):.3g}"
    return second_order.difference(actual.second, expected.second)


def _how(actual: Run, lowered: torch.jit.ScriptModule) -> set[str]:
    """Returns what made the gradient: a rule, the tape, or ordinary autograd outside of regions."""
    how: set[str] = set()
    for method in aten_recompute.report(lowered)["methods"]:
        for specialization in method["specialisations"]:
            for region in specialization["regions"]:
                for variant in region["variants"]:
                    how |= {f"tape: {name}" for name in variant["on_tape"]}
    ours = {name for name in actual.history if name.startswith("AtenRecompute")}
    ignored = (
        "struct torch::autograd::AccumulateGrad",
        "torch::autograd::AccumulateGrad",
        "torch::autograd::GraphRoot",
    )
    others = {name for name in actual.history - ours if name not in ignored}
    if ours and not how:
        how.add("rule")
    return how | {f"autograd: {name}" for name in others}


def _trace(sample: Sample, module: nn.Module) -> torch.jit.ScriptModule:
    """Returns the module traced, or scripted if PyTorch cannot trace it."""
    try:
        return _traced(sample, module)
    except Exception:
        if sample.script is None:
            raise
        try:
            return sample.script()
        except Exception:
            pass
        raise


def _traced(sample: Sample, module: nn.Module) -> torch.jit.ScriptModule:
    torch.manual_seed(7)
    before = [buffer.clone() for buffer in module.buffers()]
    traced = torch.jit.trace(module, tuple(sample.tensors), check_trace=False)
    # Tracing runs the module, so that its statistics have to be restored.
    for buffer, value in zip(module.buffers(), before, strict=True):
        buffer.copy_(value)
    return traced


def _stock(sample: Sample, mode: Mode) -> Run:
    """Runs the traced module under ordinary autograd, without LibTorch's optimizations."""
    module = copy.deepcopy(sample.module)
    with torch.jit.optimized_execution(False):
        return run(_trace(sample, module), module, sample, mode)


def _is_random(sample: Sample, strategy: str, expected: Run, mode: Mode) -> bool:
    """Whether eager gives another result when it runs again, or reads memory that has not been initialized.

    Eager reads such memory if ours equals it once new memory is filled. If it were ours that reads such memory, the
    results would differ then.
    """
    if any(difference(_run_copy(sample, mode), expected) for _ in range(RUNS[mode.device])):
        return True
    if mode.device != "cpu":
        return False  # there, deterministic algorithms are other ones
    torch.use_deterministic_algorithms(True, warn_only=True)  # PyTorch then fills new memory
    try:
        return not difference(_run_lowered(sample, strategy, mode)[0], _run_copy(sample, mode))
    finally:
        torch.use_deterministic_algorithms(False)


def _run_lowered(sample: Sample, strategy: str, mode: Mode) -> tuple[Run, torch.jit.ScriptModule]:
    module = copy.deepcopy(sample.module)
    lowered = aten_recompute.lower(_trace(sample, module), strategy)
    return run(lowered, module, sample, mode), lowered


def _run_copy(sample: Sample, mode: Mode) -> Run:
    module = copy.deepcopy(sample.module)
    return run(module, module, sample, mode)


def _check_numerically(sample: Sample, order: int) -> Outcome:
    module = copy.deepcopy(sample.module)
    if numerical.why_wrong(module, sample, order):
        return Outcome(WRONG_IN_EAGER)
    try:
        trace = _trace(sample, copy.deepcopy(sample.module))
    except Exception as error:
        return Outcome(NOT_TRACED, detail=_first_line(error))
    outcome = Outcome(SAME)
    for strategy in STRATEGIES:
        lowered = aten_recompute.lower(trace, strategy)
        what = numerical.why_wrong(lowered, sample, order)
        outcome.how |= _how(Run(), lowered) or {"rule"}
        if what:
            with torch.jit.optimized_execution(False):
                wrong_in_trace = numerical.why_wrong(trace, sample, order)
            return Outcome(TRACE_DIFFERS if wrong_in_trace else DIFFERS, outcome.how, f"{strategy}: {what}")
    return outcome


def run_sample(sample: Sample, mode: Mode) -> Outcome:
    """Compares ours with eager. If they differ, finds out whether eager or PyTorch's trace is the cause."""
    if mode.numerical:
        return _check_numerically(sample, mode.order)
    expected = _run_copy(sample, mode)
    if expected.error is None and not expected.has_gradient:
        return Outcome(NOTHING)
    try:
        _trace(sample, copy.deepcopy(sample.module))
    except Exception as error:
        if expected.error is not None:
            return Outcome(BOTH_RAISE)
        return Outcome(NOT_TRACED, detail=_first_line(error))
    outcome = Outcome(SAME)
    if expected.error is not None:
        outcome.result = BOTH_RAISE
    for strategy in STRATEGIES:
        actual, lowered = _run_lowered(sample, strategy, mode)
        outcome.how |= _how(actual, lowered)
        what = difference(actual, expected)
        if not what:
            continue
        if _is_random(sample, strategy, expected, mode):
            if mode.device != "cpu" and not difference(actual, expected, up_to_rounding=True):
                outcome.result = UNORDERED
                continue
            return Outcome(RANDOM, outcome.how, what)
        stock = _stock(sample, mode)
        trace_difference = difference(stock, expected)
        if trace_difference and not difference(actual, stock):
            return Outcome(TRACE_DIFFERS, outcome.how, trace_difference)
        return Outcome(DIFFERS, outcome.how, f"{strategy}: {what}")
    return outcome


def outcomes_of(entry: Entry, limit: int | None = None, mode: Mode | None = None) -> Iterator[tuple[str, Outcome]]:
    """Yields the result of every sample of the entry, or of ``limit`` of each dtype, with the sample's description."""
    for dtype in entry.dtypes:
        samples = list(entry.samples(dtype))
        step = 1 if limit is None else max(1, len(samples) // limit)
        for sample in samples[::step][:limit]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = run_sample(sample, mode or Mode())
            yield f"{str(dtype)[6:]}: {sample.description}", outcome
