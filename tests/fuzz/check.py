"""Runs one program as Python, scripted and lowered, and compares the results."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aten_recompute
from support.sources import run_source

from .autocast import AROUND, has_blocks, without_blocks
from .programs import Program

STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "none"},
    {"strategy": "all"},
    {"strategy": "segments"},
    {"strategy": "budget", "memory_budget": 0.5, "cost_model": "flops"},
    {
        "strategy": "budget",
        "memory_budget": 1.0,
        "cost_model": "flops",
    },  # for programs that need more than the smaller budget
]

# For programs that ask for gradients: all is computed again that can be, before the loss and after it.
LEANEST = {"strategy": "budget", "memory_budget": 0.01, "unreachable": "leanest", "cost_model": "flops"}

# The seeds of the data of three calls. Where data decide the path, the second call leaves the path of the first, and
# the third finds it again.
SEEDS = (3, 4, 3)

# The result of check() for a program that raises; it shows less than a program that returns.
RAISES = "raises in eager and in ours"

_ASSIGNMENT = re.compile(r"\s*(\w+) = (.*)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MAKES_SINGLE = re.compile(r"torch\.(zeros|ones|full|empty|rand|randn|tensor)\((?!.*dtype)")

_files = count()


class Results(NamedTuple):
    error: str | None
    tensors: Sequence[Tensor | None] = ()
    # Whether gradients pass operators outside of regions. Views that are returned are made there, after the region.
    sums_outside: bool = False
    rounding: float = 0.0  # what another order of sums may change, as a share of the largest element
    # For each output, the index of the input that it is, or None. TorchScript simplifies x.t().t() to x; gradients that
    # reach x by several outputs are then added in the order of the outputs, and not after the gradient of x itself.
    returned_inputs: Sequence[int | None] = ()
    # Second derivatives. For them, regions run again under ordinary autograd, so that sums may have another order.
    second: Sequence[Tensor | None] = ()
    # For each output, the index of the input that it is a view of, or None.
    viewed_inputs: Sequence[int | None] = ()


def function_of(program: Program, **more: Any) -> Callable[..., tuple[Tensor, ...]]:
    """Returns the program as a Python function whose source TorchScript finds by ``linecache``.

    Args:
        program: The program.
        more: What else its source may name.
    """
    names: dict[str, Any] = {"__name__": "programs", "torch": torch, "F": F, "Tensor": Tensor, **more}
    run_source(program.source, f"<program {next(_files)}>", names)
    function: Callable[..., tuple[Tensor, ...]] = names["program"]
    return function


class _Module(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, a: Tensor, b: Tensor, c: Tensor):  # TorchScript finds the type of the result
        return self.function(a, b, c)


def _sums_outside(outputs: list[Tensor]) -> bool:
    """Whether the graph of the outputs has an autograd node that belongs to no region."""
    pending = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(pending)
    while pending:
        for following, _ in pending.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    names = [node.name() for node in seen if not node.name().endswith("AccumulateGrad")]
    return any(not name.startswith("AtenRecompute") for name in names)


def _hook(tensor: Tensor, kind: str) -> None:
    def update(leaf: Tensor) -> None:
        with torch.no_grad():
            assert leaf.grad is not None
            leaf.sub_(leaf.grad, alpha=0.5)

    if kind == "replace":
        tensor.register_hook(lambda gradient: gradient * 0.5)
    elif kind == "update":
        tensor.register_post_accumulate_grad_hook(update)


def _randn_of_shape(gradient: Tensor) -> Tensor:
    # randn_like() would draw numbers in the order of the memory, but strides of gradients are not compared.
    return torch.randn(gradient.shape, dtype=gradient.dtype)


def _has_gradient(output: Tensor) -> bool:
    """Whether autograd can be asked for gradients of the output.

    A gradient without ``create_graph`` may be a view of one that the method has given. If that requires a gradient, so
    does the view, as it says, but autograd refuses to compute it.
    """
    if not output.requires_grad:
        return False
    try:
        torch.autograd.graph.get_gradient_edge(output)
    except AssertionError:
        return False
    return True


def _second(gradients: list[Tensor | None], wanted: list[Tensor]) -> list[Tensor | None]:
    differentiable = [gradient for gradient in gradients if gradient is not None and gradient.requires_grad]
    if not differentiable:
        return []
    cotangents = [_randn_of_shape(gradient) for gradient in differentiable]
    return list(torch.autograd.grad(differentiable, wanted, cotangents, allow_unused=True))


def run(function: Callable[..., Any], program: Program, seed: int = SEEDS[0]) -> Results:
    """Runs one forward and backward; returns outputs, gradients, inputs and random state, or the error."""
    torch.manual_seed(seed)
    dtype = torch.float32 if program.single else torch.float64
    inputs = [
        torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(needed)
        for shape, needed in zip(program.shapes, program.needs_grad, strict=True)
    ]
    for tensor, kind in zip(inputs, program.hooks, strict=True):
        _hook(tensor, kind)
    try:
        with AROUND[program.around]():
            outputs = list(function(*inputs))
        values = [output.detach().clone() for output in outputs]
        has_gradient = [_has_gradient(output) for output in outputs]
        needs = torch.tensor(has_gradient)
        differentiable = [output for output, has in zip(outputs, has_gradient, strict=True) if has]
        gradients: list[Tensor | None] = []
        if differentiable:
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            draw = _randn_of_shape if program.of_gradients else torch.randn_like
            cotangents = [draw(output) for output in differentiable]
            with AROUND[program.around if program.backward_inside else ""]():
                if "update" in program.hooks:
                    torch.autograd.backward(differentiable, cotangents)
                    gradients = [tensor.grad for tensor in wanted]
                else:
                    gradients = list(
                        torch.autograd.grad(
                            differentiable, wanted, cotangents, allow_unused=True, create_graph=program.twice
                        )
                    )
        second = _second(gradients, wanted) if program.twice and differentiable else []
    except (RuntimeError, AssertionError, TypeError, torch.jit.Error) as error:
        return Results(str(error) or type(error).__name__)
    gradients = [None if gradient is None else gradient.detach() for gradient in gradients]
    tensors = values + [needs] + gradients + [tensor.detach() for tensor in inputs] + [torch.get_rng_state()]
    same = [next((k for k, each in enumerate(inputs) if output is each), None) for output in outputs]
    viewed = [next((k for k, each in enumerate(inputs) if output._base is each), None) for output in outputs]
    # A gradient with create_graph is made by a region that runs again under ordinary autograd.
    # Formulas for gradients that are differentiated again are not always ATen's.
    again = program.twice or program.of_gradients or "create_graph=True" in program.source
    other_order = again or _sums_outside(differentiable)
    return Results(None, tensors, other_order, _rounding(program), same, second, viewed)


def difference(actual: Results, expected: Results) -> str:
    """Describes the first difference; returns an empty string if there is none.

    If views are made after a region, or left out, sums may have another order.
    """
    other_order = actual.sums_outside or actual.returned_inputs != expected.returned_inputs
    if (actual.error is None) != (expected.error is None):
        return f"raises: {actual.error}; expected: {expected.error}"
    for index, (a, b) in enumerate(zip(actual.tensors, expected.tensors, strict=True)):
        if (a is None) != (b is None):
            return f"tensor {index} is {'None' if a is None else 'not None'}"
        if a is None or b is None or torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)):
            continue
        if not (other_order and a.is_floating_point() and _close(a, b, expected.rounding)):
            return f"tensor {index} differs by up to {(a.double() - b.double()).abs().max().item():.3g}"
    if len(actual.second) != len(expected.second):
        return f"{len(actual.second)} second derivatives in place of {len(expected.second)}"
    for index, (a, b) in enumerate(zip(actual.second, expected.second, strict=True)):
        if (a is None) != (b is None):
            return f"second derivative {index} is {'None' if a is None else 'not None'}"
        if a is not None and b is not None and not _close(a, b, expected.rounding):
            return f"second derivative {index} differs by up to {(a - b).abs().max().item():.3g}"
    return ""


def _rounding(program: Program) -> float:
    """Returns the relative difference that another order of sums may make, by the lowest precision in the program."""
    if program.of_gradients and not has_blocks(program.source) and "autocast" not in program.source:
        return 1e-5 if program.single or _MAKES_SINGLE.search(program.source) else 1e-10
    if program.single:  # which may have bfloat16 products under autocast
        return 1e-2
    # A factory without a dtype makes a float32 tensor, which remains float32 when float64 inputs are written to it.
    return 1e-5 if _MAKES_SINGLE.search(program.source) else 1e-11


def _close(a: Tensor, b: Tensor, rounding: float) -> bool:
    """Whether two tensors are equal, except for the rounding of sums in another order.

    Where the terms of a sum cancel, as in derivatives of ``softmax(x).sum()``, what remains is the rounding of terms
    whose size is about 1.
    """
    scale = float(b.nan_to_num(0.0, 0.0, 0.0).abs().max())
    cancelled = 1e-13 if rounding < 1e-6 else 4 * torch.finfo(torch.float32).eps
    return torch.allclose(a, b, rounding, max(cancelled, rounding * scale if rounding > 1e-11 else 0.0), equal_nan=True)


def _refuses_to_write(results: Results) -> bool:
    """Whether autograd refused an in-place operator. In ours it is functional, and computes what was meant."""
    return results.error is not None and ("in-place operation" in results.error or "inplace operation" in results.error)


def _updates_early(program: Program, returned: Sequence[int | None]) -> bool:
    """Whether a hook may update a leaf before the backward has read it, which refuses to compute again from it then.

    Regions hand on the last gradient of a leaf after they have read it. A leaf that the program returns, as it is or as
    a view, may have one from elsewhere alone, and that may come before (docs/behavior.md).
    """
    return any(index is not None and program.hooks[index] == "update" for index in returned)


@contextmanager
def _optimized_at_once() -> Iterator[None]:
    """Selects TorchScript's executor that optimizes before the first run.

    The default one first runs a program twice without optimization, to record types and shapes. A program that raises
    there is never optimized, although optimization might have removed the code that raises, for example by unrolling a
    loop.
    """
    usual = torch._C._jit_set_profiling_executor(False)
    try:
        yield
    finally:
        torch._C._jit_set_profiling_executor(usual)


def raises_in_dead_code(program: Program) -> bool:
    """Whether the error is in code whose result is not read, which optimized TorchScript and ours leave out."""
    function = function_of(program)
    seeds = [seed for seed in sorted(set(SEEDS)) if run(function, program, seed).error is not None]
    with _optimized_at_once():
        return any(
            run(torch.jit.script(_Module(torch.jit.script(function))), program, seed).error is None for seed in seeds
        )


def has_unread_gradient(program: Program) -> bool:
    """Whether no path of the program reads a gradient that it asks for. Ours does not compute such a gradient."""
    assigned = [match for line in program.source.splitlines() if (match := _ASSIGNMENT.match(line))]
    live = set(_NAME.findall(program.source[program.source.rindex("return") :]))
    while True:
        read = {name for match in assigned if match[1] in live for name in _NAME.findall(match[2])}
        if read <= live:
            break
        live |= read
    return any("autograd.grad" in match[2] and match[1] not in live for match in assigned)


def _with_gradients_in_place(program: Program, seed: int, gradients: Callable[[list[Tensor]], Any]) -> Results:
    """Runs the program with what ``gradients`` returns for the targets in place of each gradient that raises."""

    def gradient(outputs: list[Tensor], inputs: list[Tensor], *given: Any, **options: Any) -> Any:
        try:
            return torch.autograd.grad(outputs, inputs, *given, **options)
        except RuntimeError:
            return gradients(inputs)

    source = program.source.replace("torch.autograd.grad(", "gradient(")
    return run(function_of(replace(program, source=source), gradient=gradient), program, seed)


def raises_for_unread_gradients(program: Program) -> bool:
    """Whether the gradients that raise are not read on the path that the data choose, so that ours computes none.

    Each is replaced by a constant; if the results are the same for two constants, nothing depends on it.
    """

    def results(constant: float, seed: int) -> Results:
        return _with_gradients_in_place(
            program, seed, lambda targets: [torch.full_like(target, constant) for target in targets]
        )

    for seed in sorted(set(SEEDS)):
        one, two = (results(constant, seed) for constant in (1.0, 2.0))
        if one.error is not None or difference(one, two):
            return False
    return True


def _unused_in_place(program: Program, seed: int) -> Results:
    """What the program returns if gradients that raise are None, as those of targets that the outputs do not use are.

    Ours knows from the graph that a target is not used, and computes nothing for a program that reads only that.
    """
    return _with_gradients_in_place(program, seed, lambda targets: [None] * len(targets))


def _difference_or_unused(actual: Results, expected: Results, program: Program, seed: int) -> str:
    what = difference(actual, expected)
    if what and expected.error is not None and "autograd.grad" in program.source:
        return difference(actual, _unused_in_place(program, seed))
    return what


def differs_in_torchscript(program: Program) -> bool:
    """Whether stock TorchScript gives another result, which ours then may as well. Autocast is left out for this."""
    plain = replace(program, source=without_blocks(program.source), around="")
    function = function_of(plain)
    scripted = torch.jit.script(_Module(torch.jit.script(function)))
    with torch.jit.optimized_execution(False):
        return any(difference(run(scripted, plain, seed), run(function, plain, seed)) for seed in SEEDS)


def shares(reasons: "Counter[str]") -> str:
    """Describes how many programs were compared, and why others were not."""
    total = max(1, sum(reasons.values()))
    each = [f"{reason or 'compared'} {n / total:.1%}" for reason, n in reasons.most_common()]
    return f"{total} programs: " + ", ".join(each)


def check(program: Program) -> str:
    """Compares the program, scripted and lowered, with eager.

    Returns:
        An empty string if it was compared, and otherwise the reason why it was not.

    Raises:
        AssertionError: there is a difference; the message has it and the program.
    """
    function = function_of(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = {seed: run(function, program, seed) for seed in SEEDS}
        try:
            scripted = torch.jit.script(_Module(torch.jit.script(function)))
        except RuntimeError:
            return "TorchScript does not compile it"
        if any(_refuses_to_write(results) for results in expected.values()):
            return "autograd refuses a write"
        if differs_in_torchscript(program):
            return "TorchScript differs from eager"
        under_autocast = bool(program.around) or has_blocks(program.source)
        if under_autocast and any(results.error is not None for results in expected.values()):
            return RAISES  # mostly because of types, and maybe in code whose result is not read
        raises = any(results.error is not None for results in expected.values())
        in_gradients = raises and "autograd.grad" in program.source
        if in_gradients and (has_unread_gradient(program) or raises_for_unread_gradients(program)):
            return "raises in dead code"
        if raises_in_dead_code(program):
            return "raises in dead code"
        for options in [LEANEST, *STRATEGIES] if "autograd.grad" in program.source else STRATEGIES:
            lowered = aten_recompute.lower(scripted, options)
            for call, seed in enumerate(SEEDS, 1):
                actual = run(lowered, program, seed)
                if actual.error is not None and "the smallest that can be reached" in actual.error:
                    break  # no plan keeps this budget, which is an error
                refused = actual.error is not None and "modified by an inplace operation" in actual.error
                returned = [*expected[seed].returned_inputs, *expected[seed].viewed_inputs]
                if refused and _updates_early(program, returned):
                    break
                what = _difference_or_unused(actual, expected[seed], program, seed)
                assert not what, f"{options}, call {call}: {what}\n{program}\n{program.source}"
            else:
                if options.get("memory_budget") == 0.5:
                    break
    return RAISES if all(results.error is not None for results in expected.values()) else ""
