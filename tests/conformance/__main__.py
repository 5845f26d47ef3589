"""``python -m conformance`` runs all entries, or some, and writes a table of the results."""

import argparse
import fnmatch
import os
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from . import table
from .cases import DTYPES, REDUCED_DTYPES, entries
from .compare import Mode
from .exceptions import (
    AUTOCAST_EXCEPTIONS,
    CUDA_EXCEPTIONS,
    EXCEPTIONS,
    NUMERICAL_EXCEPTIONS,
    REDUCED_EXCEPTIONS,
    SECOND_ORDER_EXCEPTIONS,
    SLICES_EXCEPTIONS,
)
from .worker import run_all


def _dtypes(names: str) -> tuple[torch.dtype, ...]:
    by_name = {str(dtype).removeprefix("torch."): dtype for dtype in (*DTYPES, *REDUCED_DTYPES)}
    unknown = [name for name in names.split(",") if name not in by_name]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(by_name)}")
    return tuple(by_name[name] for name in names.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="entries to run, e.g. 'linalg.*' (default: all)")
    parser.add_argument("--limit", type=int, help="number of samples of each dtype (default: all)")
    parser.add_argument(
        "--second-order",
        action="store_true",
        help="differentiate the backward as well (by default three samples of each dtype)",
    )
    parser.add_argument(
        "--dtypes",
        type=_dtypes,
        default=DTYPES,
        help="types of the samples, e.g. bfloat16,float16 (default: float64,float32,complex128)",
    )
    parser.add_argument(
        "--autocast",
        type=_dtypes,
        help="run the forward of float32 samples under autocast to this type, e.g. bfloat16",
    )
    parser.add_argument(
        "--numerical",
        action="store_true",
        help="compare with differences of results, as gradcheck does, or gradgradcheck with --second-order (by default "
        "three samples of float64 and complex128)",
    )
    parser.add_argument(
        "--slices",
        action="store_true",
        help="run each operator slice by slice that can, on float64 samples; results may differ by rounding",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the samples are (default: cpu)")
    parser.add_argument("--jobs", type=int, default=1, help="entries that run at the same time (default: 1)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder for the table (default: build)")
    arguments = parser.parse_args()
    dtypes = arguments.dtypes if arguments.autocast is None else (torch.float32,)
    if arguments.numerical:
        if arguments.autocast is not None:
            parser.error("--numerical needs double precision, which --autocast lowers")
        dtypes = (torch.float64, torch.complex128)
    autocast = None if arguments.autocast is None else arguments.autocast[0]
    order, exceptions, stem = 1, EXCEPTIONS, "conformance"
    if arguments.second_order:
        order, exceptions, stem = 2, SECOND_ORDER_EXCEPTIONS, "conformance_second_order"
    if set(dtypes) & set(REDUCED_DTYPES):
        exceptions, stem = {**exceptions, **REDUCED_EXCEPTIONS}, stem + "_reduced"
    if autocast is not None:
        exceptions, stem = AUTOCAST_EXCEPTIONS, f"conformance_autocast_{str(autocast)[6:]}"
    if arguments.numerical:
        exceptions, stem = NUMERICAL_EXCEPTIONS[order], stem + "_numerical"
    if arguments.slices:
        os.environ["RECOMPUTE_SLICES"] = "always"
        dtypes, exceptions, stem = (torch.float64,), SLICES_EXCEPTIONS, stem + "_slices"
    if arguments.device == "cuda":
        exceptions, stem = CUDA_EXCEPTIONS, stem + "_cuda"
    limit = 3 if (arguments.second_order or arguments.numerical) and arguments.limit is None else arguments.limit
    complete = limit is None and (autocast is not None or set(dtypes) in (set(DTYPES), set(REDUCED_DTYPES)))
    names = [
        entry.name for entry in entries(dtypes, arguments.numerical, arguments.device) if entry.twice or order == 1
    ]
    if arguments.patterns:
        names = [n for n in names if any(fnmatch.fnmatch(n, pattern) for pattern in arguments.patterns)]
    mode = Mode(order, autocast, arguments.numerical, arguments.device)
    rows = []
    for name, outcomes in tqdm(
        run_all(names, arguments.jobs, limit, dtypes, mode), total=len(names), desc="conformance", unit="entry"
    ):
        rows.append(table.row(name, outcomes, complete=complete, exceptions=exceptions))
        if rows[-1]["verdict"] not in (table.PASSES, table.LISTED):
            details = rows[-1]["details"]
            tqdm.write(
                f"{name}: {rows[-1]['verdict']}, {len(details)} of {rows[-1]['samples']}"
                + "".join(f"\n    {detail}" for detail in details[:3])
            )
    table.write(rows, arguments.output, stem)
    print(table.summary(rows))
    return 0 if all(row["verdict"] in (table.PASSES, table.LISTED) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
