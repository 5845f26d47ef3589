"""Writes a table of all models: ``python -m zoo [name ...]``, under autocast with ``--autocast bfloat16``."""

import argparse
import dataclasses
import importlib.util
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.memory import Tracker

from . import autocast
from .compare import Row, compare, short
from .models import MODELS

COLUMNS = (
    *("model", "made by", "regions", "on tape", "differ", "peak at 0.5", "floor"),
    *("time", "a tenth above", "first step", "stock's", "first three", "stock's", "remarks"),
)


def cells(row: Row) -> list[str]:
    made_by = "tracing" if row.traced else "scripting"
    if row.error:
        return [row.name, made_by, *[""] * 11, short(row.error, 100)]
    remarks = "; ".join(
        [f"{count} x {short(reason)}" for reason, count in row.breaks.items()]
        + ([f"{row.slices} stretches in slices, off by {row.rounding:.0e}"] if row.slices else [])
    )
    return [
        row.name,
        made_by,
        ", ".join(map(str, row.regions)),
        ", ".join(row.on_tape) or "-",
        str(len(row.different)),
        f"{row.peak_share:.2f}{'' if row.reached else ' (out of reach)'}",
        f"{row.floor_share:.2f}",
        f"{row.time_factor:.2f}",
        "" if row.reached else f"{row.near_share:.2f} / {row.near_factor:.2f}",
        f"{row.first_step:.1f}",
        f"{row.stock_first_step:.1f}",
        f"{row.warm_up:.1f}",
        f"{row.stock_warm_up:.1f}",
        remarks,
    ]


def table(rows: list[Row]) -> str:
    lines = [COLUMNS, ["---"] * len(COLUMNS), *map(cells, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# What is expected of every model, as the exception to it.
EXPECTATIONS: dict[str, Callable[[Row], bool]] = {
    "differ, are several regions or have operators on tape": lambda row: (
        bool(row.different or row.on_tape) or set(row.regions) != {1}
    ),
    "cannot be trained in half of eager's memory": lambda row: not row.reached,
    "of these, not within a tenth of the floor": lambda row: not row.reached and row.peak_share > 1.1 * row.floor_share,
    "take more than 1.25 times as long as eager": lambda row: row.time_factor > 1.25,
    "take more than 3 of eager's steps above stock TorchScript's first": lambda row: (
        row.first_step > 3 + row.stock_first_step
    ),
}


def summary(rows: list[Row]) -> str:
    trained = [row for row in rows if not row.error]
    lines = [f"{len(trained)} of {len(rows)} models are trained. Of these"]
    for what, is_exception in EXPECTATIONS.items():
        exceptions = [row.name for row in trained if is_exception(row)]
        lines.append(f"- {len(exceptions)} {what}{': ' if exceptions else ''}{', '.join(exceptions)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(MODELS)} (default all)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder for zoo.json and zoo.md")
    parser.add_argument(
        "--inexact",
        action="store_true",
        help="measure peaks and times with exact=False, under which operators may run in slices",
    )
    parser.add_argument("--autocast", choices=autocast.TYPES, help="call the models under autocast to this type")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    warnings.filterwarnings("ignore")
    tracker = Tracker()
    tracker.install()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.autocast:
        return autocast.write_table(options.names or list(MODELS), options.autocast, options.output, tracker)
    rows: list[Row] = []
    for name in tqdm(options.names or list(MODELS), unit="model", file=sys.stderr):
        if importlib.util.find_spec(MODELS[name].package) is None:
            rows.append(Row(name, error=f"{MODELS[name].package} is not installed"))
        else:
            rows.append(compare(MODELS[name], tracker, exact=not options.inexact))
        (options.output / "zoo.json").write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
        (options.output / "zoo.md").write_text(table(rows) + "\n\n" + summary(rows) + "\n")
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; times and peaks relative to eager")
    print(table(rows))
    print(summary(rows))
    return int(any(row.error or row.different or len(set(row.regions)) > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
