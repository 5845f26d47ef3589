"""Trains the models under autocast, in eager PyTorch and lowered: bits, peaks, budgets and predictions."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

import aten_recompute
from benchmarks.memory import Tracker

from .compare import STEPS, Around, equal, floor_of, one_thread, peak_of, short, step, weights_of_loss
from .models import MODELS, Inputs, Model

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
BUDGETS = (0.5, 0.25)  # shares of eager's peak under the same autocast
PREDICTION_TOLERANCE = 0.03

COLUMNS = ("model", "unplanned", "differ", "eager, MiB", "none", "predicted", *(f"at {b}" for b in BUDGETS), "floor")


@dataclass
class Measured:
    """Of the plan for one budget, or without one. Shares are relative to eager's peak under the same autocast."""

    share: float
    predicted: float
    budget: float | None = None

    @property
    def error(self) -> str:
        """How much more the step took than predicted; empty where nothing is planned."""
        return f"{self.share / self.predicted - 1:+.1%}" if self.predicted > 0 else ""

    @property
    def is_predicted(self) -> bool:
        return abs(self.share - self.predicted) <= PREDICTION_TOLERANCE * self.predicted or self.predicted == 0

    @property
    def is_kept(self) -> bool:
        return self.budget is None or self.share <= self.budget

    def __str__(self) -> str:
        return f"{self.share:.2f} ({self.error}){'' if self.is_kept else ' out of reach'}"


@dataclass
class Row:
    name: str
    error: str = ""
    unplanned: list[str] = field(default_factory=list)  # why calls or regions ran under ordinary autograd
    different: list[str] = field(default_factory=list)  # from eager, under any budget
    eager_bytes: int = 0
    none: Measured | None = None
    budgets: list[Measured] = field(default_factory=list)
    floor_share: float = 0.0

    def cells(self) -> list[str]:
        if self.error:
            return [self.name, *[""] * (len(COLUMNS) - 2), short(self.error, 100)]
        assert self.none is not None
        return [
            self.name,
            "; ".join(map(short, self.unplanned)) or "-",
            str(len(self.different)),
            f"{self.eager_bytes / 2**20:.1f}",
            f"{self.none.share:.2f}",
            self.none.error,
            *map(str, self.budgets),
            f"{self.floor_share:.2f}",
        ]


def unplanned(lowered: torch.jit.ScriptModule) -> list[str]:
    methods = aten_recompute.report(lowered)["methods"]
    reasons = {call["reason"] for method in methods for call in method["unplanned_calls"]}
    regions = [r for method in methods for s in method["specialisations"] for r in s["regions"]]
    missing = sum(not region["variants"] for region in regions)
    return sorted(reasons) + ([f"{missing} of {len(regions)} regions"] if missing else [])


def predicted_bytes(lowered: torch.jit.ScriptModule) -> int:
    """Returns the peak that the plan in use predicts: of all regions together, if there are several."""
    peaks = [0]
    for method in aten_recompute.report(lowered)["methods"]:
        for each in method["specialisations"]:
            variants = [region["variants"][-1] for region in each["regions"] if region["variants"]]
            plans = each["plans"][-1:] or variants[-1:]
            peaks += [plan["predicted_peak_bytes"] for plan in plans]
    return max(peaks)


@contextmanager
def dispatcher_casts() -> Iterator[None]:
    """Keeps TorchScript from inserting casts of its own, by other lists than the dispatcher's, and from autodiff."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        with torch.jit.optimized_execution(False):
            yield
    finally:
        torch._C._jit_set_autocast_mode(before)


@one_thread()
@dispatcher_casts()
def differences(lowered: Any, model: Model, inputs: Inputs, around: Around) -> list[str]:
    """Returns what equals neither eager PyTorch nor stock TorchScript: a trace has the types of its making."""
    found: set[str] = set()
    others = [model.fresh(), *([model.program()] if model.traced else [])]
    for seed in range(STEPS):
        ours, *theirs = (step(module, inputs, seed, around) for module in (lowered, *others))
        # A traced module has only the buffers that it reads.
        found |= {
            name
            for name, result in ours.items()
            if any(name in other for other in theirs)
            and not any(name in other and equal(result, other[name]) for other in theirs)
        }
    return sorted(found)


def compare(model: Model, dtype: torch.dtype, tracker: Tracker) -> Row:
    def around() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=dtype)

    row = Row(model.name)
    torch.manual_seed(1)
    inputs = model.inputs()
    try:
        eager = model.fresh()
        weights: list[Tensor] = weights_of_loss(eager, inputs, around)
        row.eager_bytes = peak_of(eager, inputs, weights, tracker, around)
    except Exception as error:
        row.error = f"without us: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return row
    try:
        for budget in (None, *BUDGETS):
            spec: dict[str, Any] = {"strategy": "none", "profile": True}
            if budget is not None:
                spec = {"strategy": "budget", "memory_budget": int(budget * row.eager_bytes), "unreachable": "leanest"}
            row.different += differences(aten_recompute.lower(model.program(), **spec), model, inputs, around)
            lowered = aten_recompute.lower(model.program(), accumulate=True, **spec)
            peak = peak_of(lowered, inputs, weights, tracker, around)
            measured = Measured(peak / row.eager_bytes, predicted_bytes(lowered) / row.eager_bytes, budget)
            if budget is None:
                row.none, row.unplanned = measured, unplanned(lowered)
            else:
                row.budgets.append(measured)
                row.floor_share = floor_of(lowered, 1) / row.eager_bytes
    except Exception as error:
        row.error = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    return row


def table(rows: list[Row]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def is_fine(row: Row) -> bool:
    if row.error or row.none is None:
        return row.error.startswith("without us")
    return not row.different and row.none.share <= 1.0 and all(m.is_predicted for m in (row.none, *row.budgets))


def write_table(names: list[str], dtype: str, output: Path, tracker: Tracker) -> int:
    """Writes ``zoo_autocast.md`` to the folder and prints it. Returns the exit status."""
    rows: list[Row] = []
    for name in tqdm(names, unit="model", file=sys.stderr):
        if importlib.util.find_spec(MODELS[name].package) is None:
            rows.append(Row(name, error=f"without us: {MODELS[name].package} is not installed"))
        else:
            rows.append(compare(MODELS[name], TYPES[dtype], tracker))
        (output / "zoo_autocast.md").write_text(table(rows) + "\n")
    print(f"PyTorch {torch.__version__}, autocast to {dtype}; peaks relative to eager's, in brackets to the prediction")
    print(table(rows))
    return int(not all(map(is_fine, rows)))
