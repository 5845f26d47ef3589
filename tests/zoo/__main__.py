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
        + ([f"{len(row.unstable)} results of eager differ from themselves"] if row.unstable else [])
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


def write(rows: list[Row], folder: Path) -> None:
    (folder / "zoo.json").write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    (folder / "zoo.md").write_text(table(rows) + "\n\n" + summary(rows) + "\n")


def write_table(rows: list[Row], folder: Path) -> int:
    """Writes and prints the table; returns the exit status, which is 1 if a model failed or differs."""
    write(rows, folder)
    print(table(rows))
    print(summary(rows))
    return int(any(row.error or row.different or len(set(row.regions)) > 1 for row in rows))


def main() -> int:
    parser = argparse.ArgumentParser(prog="zoo", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(MODELS)} (default all)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder for zoo.json and zoo.md")
    parser.add_argument(
        "--inexact",
        action="store_true",
        help="measure peaks and times with exact=False, under which operators may run in slices",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the models train (default cpu)")
    parser.add_argument("--autocast", choices=autocast.TYPES, help="call the models under autocast to this type")
    parser.add_argument(
        "--join", nargs="+", type=Path, metavar="FILE", help="run nothing, but join these zoo.json to one table"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.join:
        joined = [Row(**row) for file in options.join for row in json.loads(file.read_text())]
        return write_table(joined, options.output)
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    warnings.filterwarnings("ignore")
    tracker = Tracker()
    if options.device == "cpu":
        tracker.install()
    if options.autocast:
        return autocast.write_table(options.names or list(MODELS), options.autocast, options.output, tracker)
    rows: list[Row] = []
    for name in tqdm(options.names or list(MODELS), unit="model", file=sys.stderr):
        if importlib.util.find_spec(MODELS[name].package) is None:
            rows.append(Row(name, error=f"{MODELS[name].package} is not installed"))
        else:
            model = dataclasses.replace(MODELS[name], device=options.device)
            rows.append(compare(model, tracker, exact=not options.inexact))
        write(rows, options.output)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; times and peaks relative to eager")
    return write_table(rows, options.output)


if __name__ == "__main__":
    sys.exit(main())
