"""Trains one model in eager PyTorch, as stock TorchScript and lowered, and compares what can be seen."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.memory import Tracker
from benchmarks.timing import no_collections

from .models import Inputs, Model

STEPS = 3
WARM_UP = 5
TIMED_STEPS = 7
BUDGET = 0.5


@dataclass
class Row:
    """What is known of one model. Shares and factors are relative to eager PyTorch."""

    name: str
    traced: bool = False
    error: str = ""  # of the package or of stock TorchScript, which begins with "without us", or ours
    specializations: int = 0
    regions: list[int] = field(default_factory=list)  # of each specialization
    breaks: dict[str, int] = field(default_factory=dict)  # by operator and reason
    on_tape: dict[str, int] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)  # from eager PyTorch and from stock TorchScript, in each step
    unstable: list[str] = field(default_factory=list)  # in which eager PyTorch differs from itself, on a GPU
    peak_share: float = 0.0  # at the budget, or the smallest that can be reached
    reached: bool = False
    time_factor: float = 0.0  # of the plan with this peak
    floor_share: float = 0.0  # what one operator, or the loss, takes by itself: no plan has a smaller peak
    slices: int = 0  # how many stretches of operators run slice by slice for that
    rounding: float = 0.0  # norm of the difference of results and gradients from eager's, relative to these
    near_share: float = 0.0  # of the plan for a tenth more, where this is the smallest, and its time
    near_factor: float = 0.0
    first_step: float = 0.0  # in steps of eager
    stock_first_step: float = 0.0
    # What the first three steps take beyond three of eager: stock TorchScript compiles in each of them.
    warm_up: float = 0.0
    stock_warm_up: float = 0.0


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for each in value for tensor in tensors_in(each)] if isinstance(value, list | tuple) else []


Around = Callable[[], AbstractContextManager[Any]]


def step(module: nn.Module, inputs: Inputs, seed: int, around: Around = nullcontext) -> dict[str, Tensor | None]:
    """Runs a step whose parameters' gradients exist; returns results, gradients and buffers.

    The call, but not its backward, is inside of ``around``.
    """
    torch.manual_seed(seed)
    own = [
        value.detach().clone().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in inputs
    ]
    with around():
        outputs = [output for output in tensors_in(module(*own)) if output.requires_grad]
    torch.autograd.backward(
        outputs, [torch.linspace(-1, 1, o.numel(), device=o.device).view_as(o).to(o.dtype) for o in outputs]
    )
    seen: dict[str, Tensor | None] = {f"result {i}": output.detach() for i, output in enumerate(outputs)}
    seen |= {f"input {i}": each.grad for i, each in enumerate(own) if isinstance(each, Tensor) and each.requires_grad}
    seen |= {name: None if each.grad is None else each.grad.clone() for name, each in module.named_parameters()}
    seen |= {name: buffer.clone() for name, buffer in module.named_buffers()}
    return seen


def equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)


def train(module: nn.Module, inputs: Inputs, weights: list[Tensor], around: Around = nullcontext) -> None:
    """Runs a step as a training loop would: what the module returns is gone when the backward begins."""
    with around():
        results = [output for output in tensors_in(module(*inputs)) if output.requires_grad]
    loss = torch.stack([(result * weight).sum() for result, weight in zip(results, weights, strict=True)]).sum()
    del results
    torch.autograd.backward([loss])


def weights_of_loss(module: nn.Module, inputs: Inputs, around: Around = nullcontext) -> list[Tensor]:
    with around():
        results = [output for output in tensors_in(module(*inputs)) if output.requires_grad]
    return [torch.linspace(-1, 1, each.numel(), device=each.device).view_as(each).to(each.dtype) for each in results]


def synchronize() -> None:
    """Waits until a GPU has done what it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(module: nn.Module, inputs: Inputs, weights: list[Tensor]) -> float:
    synchronize()
    with no_collections():
        start = time.perf_counter()
        train(module, inputs, weights)
        synchronize()
        return time.perf_counter() - start


def first_steps(module: nn.Module, inputs: Inputs, weights: list[Tensor], eager: float) -> tuple[float, float]:
    """Returns the first step, and what the first three take beyond three of eager, in steps of eager."""
    factors = [seconds_of(module, inputs, weights) / eager for _ in range(3)]
    return factors[0], sum(factors) - len(factors)


def describe(row: Row, lowered: torch.jit.ScriptModule) -> None:
    breaks: Counter[str] = Counter()
    on_tape: Counter[str] = Counter()
    specializations = [
        each for method in aten_recompute.report(lowered)["methods"] for each in method["specialisations"]
    ]
    row.specializations = len(specializations)
    for specialization in specializations:
        row.regions.append(len(specialization["regions"]))
        breaks.update(f"{each['node']}: {each['reason']}" for each in specialization["breaks"])
        for region in specialization["regions"]:
            for variant in region["variants"]:
                on_tape.update(variant["on_tape"])
    row.breaks, row.on_tape = dict(breaks), dict(on_tape)


def compare(model: Model, tracker: Tracker | None, exact: bool = True) -> Row:
    """Fills a row. Without a tracker, memory and time are left out."""
    row = Row(model.name, model.traced)
    torch.manual_seed(1)
    inputs = model.batch()
    try:
        eager = model.fresh()
        weights = weights_of_loss(eager, inputs)
        eager_seconds = min(seconds_of(eager, inputs, weights) for _ in range(4))
        row.stock_first_step, row.stock_warm_up = first_steps(model.program(), inputs, weights, eager_seconds)
    except Exception as error:
        row.error = f"without us: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return row
    try:
        compare_bits(row, model, inputs)
        lowered = aten_recompute.lower(model.program(), strategy="none")
        row.first_step, row.warm_up = first_steps(lowered, inputs, weights, eager_seconds)
        if tracker is not None:
            measure(row, model, inputs, weights, tracker, exact)
    except Exception as error:
        row.error = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    return row


@contextmanager
def one_thread() -> Iterator[None]:
    """Several threads add the gradients of equal indices in any order: eager PyTorch then differs from itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def compare_bits(row: Row, model: Model, inputs: Inputs) -> None:
    eager, stock = model.fresh(), model.program()
    repeated = [model.fresh() for _ in range(0 if model.device == "cpu" else 3)]
    lowered = aten_recompute.lower(model.program(), strategy="none")
    for seed in range(STEPS):
        ours, theirs = step(lowered, inputs, seed), (step(eager, inputs, seed), step(stock, inputs, seed))
        # Many kernels for GPUs add in any order.
        again = [step(each, inputs, seed) for each in repeated]
        unstable = [name for name, result in theirs[0].items() if any(not equal(each[name], result) for each in again)]
        row.unstable += unstable
        ours = {name: result for name, result in ours.items() if name not in unstable}
        # A traced module has only the buffers that it reads, and scripting may take a reparametrization off.
        row.different += sorted(
            name
            for name, result in ours.items()
            if not any(name in other and equal(result, other[name]) for other in theirs)
        )
    describe(row, lowered)


def peak_of(
    module: nn.Module, inputs: Inputs, weights: list[Tensor], tracker: Tracker, around: Around = nullcontext
) -> int:
    for _ in range(WARM_UP):  # a plan may be made again after the first two
        train(module, inputs, weights, around)
    with tracker.measure_peak(weights[0].device) as peak:
        train(module, inputs, weights, around)
    return peak.bytes


def bytes_of_largest_operator(problem: dict[str, Any]) -> int:
    """Returns the bytes of the operands, results and workspace that some operator needs at the same time."""
    nodes, storages = problem["nodes"], problem["storages"]
    largest = 0
    for node in range(problem["num_nodes"]):
        if not nodes["outputs"][node] or nodes["alternatives"][node]:
            continue  # it reads sizes only, or another operator may run in its place
        outputs = [] if nodes["overwrites"][node] else nodes["outputs"][node]
        values = [*nodes["inputs"][node], *outputs]
        used = {storage for value in values for storage in problem["values"]["storages"][value]}
        own = sum(storages["bytes"][storage] for storage in used if not storages["held"][storage])
        largest = max(largest, own + nodes["workspace_bytes"][node])
    return largest


def bytes_around_the_loss(problem: dict[str, Any]) -> int:
    """Returns the bytes of the method's results and of their gradients, which a loss such as the one here needs."""
    storages = problem["storages"]
    values = [*problem["results"], *problem["incoming"]]
    ends = {storage for value in values for storage in problem["values"]["storages"][value]}
    return sum(storages["bytes"][storage] for storage in ends if not storages["held"][storage])


def floor_of(lowered: torch.jit.ScriptModule, specializations: int) -> int:
    """Returns the bytes that one operator, or the loss, takes by itself; 0 where nothing was planned."""
    floors = [*map(bytes_of_largest_operator, problems := aten_recompute.problems(lowered))]
    if len(problems) == specializations:  # each of one region, so that its results are the method's
        floors += map(bytes_around_the_loss, problems)
    return max(floors, default=0)


def slices_of(lowered: torch.jit.ScriptModule) -> int:
    """Returns how many stretches of operators run slice by slice, in the specialization that has most."""
    return max(
        sum(max((variant["slices"] for variant in region["variants"]), default=0) for region in each["regions"])
        for each in aten_recompute.report(lowered)["methods"][0]["specialisations"]
    )


def relative_difference(ours: dict[str, Tensor | None], theirs: dict[str, Tensor | None]) -> float:
    """Returns the norm of the difference of all tensors together, relative to that of ``theirs`` unless it is 0."""
    different = whole = 0.0
    for name, result in theirs.items():
        mine = ours.get(name)
        if result is None or mine is None or not result.is_floating_point():
            continue
        different += float((mine.double() - result.double()).square().sum())
        whole += float(result.double().square().sum())
    return float((different / (whole or 1.0)) ** 0.5)


def measure(
    row: Row, model: Model, inputs: Inputs, weights: list[Tensor], tracker: Tracker, exact: bool = True
) -> None:
    """Measures peak and time at the budget; with ``exact`` False, what results up to rounding allow."""
    eager = model.fresh()
    peak_of_eager = peak_of(eager, inputs, weights, tracker)

    def peak_and_time(budget: int) -> tuple[int, float, int]:
        spec: dict[str, Any] = {"accumulate": True, "unreachable": "leanest", "memory_budget": budget, "exact": exact}
        lowered = aten_recompute.lower(model.program(), strategy="budget", **spec)
        peak = peak_of(lowered, inputs, weights, tracker)
        factors = []
        for seed in range(TIMED_STEPS):  # the same random numbers for both: some models drop whole layers
            torch.manual_seed(seed)
            ours = seconds_of(lowered, inputs, weights)
            torch.manual_seed(seed)
            factors.append(ours / seconds_of(eager, inputs, weights))
        if not exact:
            row.slices = slices_of(lowered)
            lowered.zero_grad()
            eager.zero_grad()
            row.rounding = relative_difference(step(lowered, inputs, 0), step(eager, inputs, 0))
        return peak, statistics.median(factors), floor_of(lowered, row.specializations)

    peak, row.time_factor, floor = peak_and_time(int(BUDGET * peak_of_eager))
    row.peak_share = peak / peak_of_eager
    row.floor_share = floor / peak_of_eager
    row.reached = row.peak_share <= BUDGET
    if not row.reached:
        near, row.near_factor, _ = peak_and_time(int(1.1 * peak))
        row.near_share = near / peak_of_eager


def short(text: str, length: int = 60) -> str:
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= length else text[: length - 3] + "..."
