"""Measures the configurations of one model side by side.

All configurations run in one process, each with its own copy of the same weights. They take turns in an order that
rotates, so that a busy moment of the machine affects all of them. A turn is two steps, of which the second one is
measured: after the first one, free memory is as a loop of such steps leaves it, and not as the configuration before
left it. Otherwise, a configuration that needs more memory than the one before it would have to get it from the system
page by page, which can make a step half as long again. A step frees the gradients, runs the forward and the backward,
and reads the loss. Its peak is counted above the memory in use before the step, which includes parameters and batch.
"""

import copy
import functools
import gc
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tqdm import tqdm

from benchmarks import configurations, models, peers
from benchmarks.configurations import Configuration
from benchmarks.memory import tracker
from benchmarks.timing import disturbed

# The first step compiles; a profiling executor such as TorchScript's compiles again in the second one.
WARM_UP_STEPS = 2
# The greatest difference of Result.gradient_check from eager's that counts as a right gradient.
GRADIENT_TOLERANCE = 0.03


@dataclass
class Result:
    """The measurements of one configuration of one model.

    `peak_bytes` and `step_seconds` are medians over the repetitions. The ratios are to eager, or None without eager.

    `loss` is the loss of the first measured step. All configurations seed that step alike. Without an optimizer it
    therefore differs from eager's only by rounding, or because a compiler draws the dropout masks in another order.

    `gradient_check` is the change of the loss along the gradient, divided by the change that the gradient predicts. It
    is near 1 for a right gradient, whichever masks were drawn. If it is far from eager's, `wrong_gradients` is set:
    the configuration does not train the model, whatever its peak.

    `unreachable` is a message that no plan keeps the budget, with the smallest budget that can be kept.
    `first_step_seconds` includes all compilation. `predicted_peak_bytes` and `plan_seconds` come from our planner.

    `disturbed` is set if other work on the machine has disturbed `step_seconds`, or the step time of eager, to which
    it is compared. `time_ratio` is then meaningless (see timing.py).
    """

    model: str
    configuration: str
    group: str
    budget_bytes: int | None = None
    peak_bytes: float = 0.0
    step_seconds: float = 0.0
    peak_ratio: float | None = None
    time_ratio: float | None = None
    loss: float = float("nan")
    gradient_check: float | None = None
    wrong_gradients: bool = False
    first_step_seconds: float | None = None
    predicted_peak_bytes: int | None = None
    plan_seconds: float | None = None
    peaks_bytes: list[int] = field(default_factory=list)
    steps_seconds: list[float] = field(default_factory=list)
    disturbed: bool = False
    unreachable: str | None = None
    error: str | None = None

    @property
    def measured(self) -> bool:
        return self.error is None and self.unreachable is None

    @property
    def comparable(self) -> bool:
        return self.measured and not self.wrong_gradients


class Contender:
    """A configuration with its own copy of the model and its measurements."""

    def __init__(self, workload: models.Workload, configuration: Configuration, options: "Options") -> None:
        self.workload = workload
        self.device = options.device
        self.result = Result(workload.name, configuration.name, configuration.group, configuration.budget_bytes)
        self.warm_up_peak = 0
        self.module: Any = None
        self._make = lambda: configuration.compile(copy.deepcopy(workload.module))
        self._learning = options.optimizer
        self._accumulate = options.accumulate
        self._optimizer: torch.optim.Optimizer | None = None

    def step(self) -> float:
        """Runs one training step. Returns the loss; reading it also waits for the device."""
        loss = self.workload.loss(self.module)
        loss.backward()
        if self._optimizer is not None:
            self._optimizer.step()
        return loss.detach().item()

    def clear(self) -> None:
        """Clears the gradients: to zeros in the same memory if they are accumulated, otherwise by freeing them."""
        self.module.zero_grad(set_to_none=not self._accumulate)

    def warm_up(self) -> None:
        """Builds the module and runs it until it has been compiled; measures the peak and checks the gradient."""
        began = time.perf_counter()
        self.module = self._make()
        if self._learning:
            self._optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3)
        for index in range(WARM_UP_STEPS):
            torch.manual_seed(0)
            self.clear()
            with tracker.measure_peak(self.device) as peak:
                self.step()
            if index == 0:
                self.result.first_step_seconds = time.perf_counter() - began
        self.warm_up_peak = peak.bytes
        self.result.gradient_check = check_gradient(self.workload, self.module)
        if self.result.group == "ours":
            read_report(self.module, self.result)

    def measure(self, repetition: int) -> None:
        self.clear()
        self.step()
        torch.manual_seed(repetition)
        # Outside of the measurement, since the gradients of the last repetition would count as resting otherwise.
        self.clear()
        with tracker.measure_peak(self.device) as peak:
            begin = time.perf_counter()
            loss = self.step()
            seconds = time.perf_counter() - begin
        if repetition == 0:
            self.result.loss = loss
        self.result.peaks_bytes.append(peak.bytes)
        self.result.steps_seconds.append(seconds)

    def attempt(self, action: Callable[[], Any]) -> None:
        """Runs `action` unless something failed earlier.

        An exception is recorded in the result, so that the other configurations still run.
        """
        if not self.result.measured:
            return
        try:
            action()
        except Exception as error:  # whatever a compiler under test raises
            note(error, self.result)
        if self.module is not None:
            self.clear()
        if not self.result.measured:
            self.module = self._optimizer = None


@dataclass
class Options:
    """What to measure, and how. `only` has names of groups and configurations, see configurations.selectable."""

    only: Sequence[str] = configurations.GROUPS
    budgets: Sequence[float] = configurations.OUR_BUDGETS
    compile_budgets: Sequence[float] = configurations.PEER_BUDGETS
    repeats: int = 9
    size: str = "full"
    device: str = "cpu"
    optimizer: bool = False
    accumulate: bool = False


def note(error: Exception, result: Result) -> None:
    """Puts one line about `error` into `result`: as `unreachable` if a budget cannot be kept, otherwise as `error`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if result.budget_bytes is not None:
        for line in lines:
            if re.search(r"reach|smallest", line) and re.search(r"\d", line):
                result.unreachable = line
                return
    line = lines[0] if lines else ""
    if line.startswith("The following operation failed in the TorchScript interpreter"):
        line = lines[-1]
    result.error = f"{type(error).__name__}: {line}"


def check_gradient(workload: models.Workload, module: torch.nn.Module, share: float = 0.0005) -> float | None:
    """Returns the change of the loss along its gradient, divided by the change that the gradient predicts.

    The quotient is near 1 for a right gradient. It does not depend on the random numbers that forward and backward
    share, because all three forwards start from one seed. The step along the gradient has the length that should
    change the loss by the share `share`. Returns None if the gradient is zero.
    """
    torch.manual_seed(0)
    loss = workload.step(module).item()
    moved = [parameter for parameter in module.parameters() if parameter.grad is not None]
    gradients = [parameter.grad.detach().clone() for parameter in moved if parameter.grad is not None]
    values = [parameter.detach().clone() for parameter in moved]
    squared = sum(gradient.double().square().sum().item() for gradient in gradients)
    if squared == 0.0:
        return None
    length = share * abs(loss) / squared
    sides = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for parameter, value, gradient in zip(moved, values, gradients, strict=True):
                parameter.copy_(value).add_(gradient, alpha=sign * length)
        torch.manual_seed(0)
        sides.append(workload.loss(module).item())
    with torch.no_grad():
        for parameter, value in zip(moved, values, strict=True):
            parameter.copy_(value)
    return (sides[0] - sides[1]) / (2.0 * length * squared)


def find_key(data: Any, key: str) -> Iterator[Any]:
    """Yields every value with the key `key` anywhere in nested dicts and lists."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name == key:
                yield value
            yield from find_key(value, key)
    elif isinstance(data, list):
        for value in data:
            yield from find_key(value, key)


def read_report(module: Any, result: Result) -> None:
    """Reads the planner's own figures into `result`; those that the library does not report remain None."""
    import aten_recompute

    report = aten_recompute.report(module)
    peaks = [value for value in find_key(report, "predicted_peak_bytes") if isinstance(value, (int, float))]
    seconds = [value for value in find_key(report, "plan_seconds") if isinstance(value, (int, float))]
    # The prediction is 0 if the strategy did not need one.
    result.predicted_peak_bytes = int(max(peaks)) or None if peaks else None
    result.plan_seconds = sum(seconds) if seconds else None


def warm_up(
    wanted: Sequence[Configuration], workload: models.Workload, options: Options, progress: tqdm
) -> list[Contender]:
    contenders = []
    for configuration in wanted:
        progress.set_description(f"{workload.name}: preparing {configuration.name}")
        contender = Contender(workload, configuration, options)
        contender.attempt(contender.warm_up)
        contenders.append(contender)
        progress.update()
    return contenders


def extend(progress: tqdm, steps: int) -> None:
    progress.total += steps
    progress.refresh()


def run_model(name: str, options: Options, progress: tqdm) -> list[Result]:
    """Measures one model, in two phases: our budgets depend on the peaks of eager and of the peers."""
    workload = models.make(name, options.size).to(options.device)
    said = {"accumulate": options.accumulate, "release_outputs": workload.release_outputs}
    table = configurations.fixed(name, options.compile_budgets, said)
    wanted = [each for each in table if configurations.selected(each, options.only)]
    extend(progress, len(wanted) * (1 + options.repeats))
    contenders = warm_up(wanted, workload, options, progress)

    budgets: list[Configuration] = []
    if {"ours", configurations.SWEEP} & set(options.only) and options.budgets:
        eager = next((each for each in contenders if each.result.configuration == "eager"), None)
        if eager is None:
            eager = warm_up([table[0]], workload, options, tqdm(disable=True))[0]
        budgets += configurations.sweep(eager.warm_up_peak, options.budgets, said)
    peaks = [each.warm_up_peak for each in contenders if each.result.group == "peers" and each.result.measured]
    if {"ours", configurations.PARTNERS} & set(options.only):
        budgets += configurations.partners(peaks, said)
    if {"ours", configurations.INEXACT_PARTNERS} & set(options.only):
        budgets += configurations.partners(peaks, {**said, "exact": False})
    extend(progress, len(budgets) * (1 + options.repeats))
    contenders += warm_up(budgets, workload, options, progress)

    # Each measurement begins by collecting garbage. The many objects that compilers have made by now are not garbage;
    # to freeze them spares looking through them every time.
    gc.collect()
    gc.freeze()
    running = [each for each in contenders if each.result.measured]
    progress.update((len(contenders) - len(running)) * options.repeats)
    for repetition in range(options.repeats):
        turn = repetition * len(running) // options.repeats
        for contender in running[turn:] + running[:turn]:
            progress.set_description(f"{name}: {contender.result.configuration}, {repetition + 1} of {options.repeats}")
            contender.attempt(functools.partial(contender.measure, repetition))
            progress.update()

    results = [contender.result for contender in contenders]
    summarize(results)
    del contenders, running
    gc.unfreeze()
    peers.forget_compiled()
    gc.collect()
    return results


def summarize(results: Sequence[Result]) -> None:
    """Computes the medians, ratios and marks of the results of one model."""
    for result in results:
        if result.measured:
            result.peak_bytes = statistics.median(result.peaks_bytes)
            result.step_seconds = statistics.median(result.steps_seconds)
            result.disturbed = disturbed(result.steps_seconds)
    base = next((each for each in results if each.configuration == "eager" and each.measured), None)
    expected = 1.0 if base is None or base.gradient_check is None else base.gradient_check
    for result in results:
        if not result.measured:
            continue
        if result.gradient_check is not None:
            result.wrong_gradients = abs(result.gradient_check - expected) > GRADIENT_TOLERANCE
        if base is not None:
            result.peak_ratio = result.peak_bytes / base.peak_bytes
            result.time_ratio = result.step_seconds / base.step_seconds
            result.disturbed = result.disturbed or base.disturbed
