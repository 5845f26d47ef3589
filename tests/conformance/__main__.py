"""``python -m conformance``: all entries, with a progress bar and a table."""

import argparse
import fnmatch
import sys
from pathlib import Path

from tqdm import tqdm

from . import table
from .cases import entries
from .worker import Worker


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="entries to run, e.g. 'linalg.*' (default: all)")
    parser.add_argument("--limit", type=int, help="samples of each dtype (default: all)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of the table")
    arguments = parser.parse_args()
    names = [entry.name for entry in entries()]
    if arguments.patterns:
        names = [n for n in names if any(fnmatch.fnmatch(n, pattern) for pattern in arguments.patterns)]
    worker = Worker(arguments.limit)
    rows = []
    for name in tqdm(names, desc="conformance", unit="entry"):
        rows.append(table.row(name, worker.run(name), complete=arguments.limit is None))
        if rows[-1]["verdict"] not in (table.PASSES, table.LISTED):
            details = rows[-1]["details"]
            tqdm.write(f"{name}: {rows[-1]['verdict']}, {len(details)} of {rows[-1]['samples']}" + "".join(
                f"\n    {detail}" for detail in details[:3]))
    worker.close()
    table.write(rows, arguments.output)
    print(table.summary(rows))
    return 0 if all(row["verdict"] in (table.PASSES, table.LISTED) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
