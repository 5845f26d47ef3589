"""Writes the results as JSON and as a table in Markdown."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .compare import BOTH_RAISE, NOTHING, SAME, UNORDERED, WRONG_IN_EAGER
from .exceptions import EXCEPTIONS, KnownException
from .worker import Outcomes

FINE = (SAME, BOTH_RAISE, NOTHING, WRONG_IN_EAGER, UNORDERED)

PASSES, LISTED, FAILS, FORGOTTEN = "passes", "on the list", "fails", "passes, but is on the list"

Exceptions = Mapping[str, KnownException]


def verdict(name: str, outcomes: Outcomes, complete: bool = True, exceptions: Exceptions = EXCEPTIONS) -> str:
    """Judges an entry by its outcomes and the exceptions. ``complete``: these are the outcomes of all samples."""
    fine = all(outcome.result in FINE for _, outcome in outcomes)
    if name in exceptions:
        allowed = exceptions[name].result
        if fine:
            return FORGOTTEN if complete else LISTED
        return LISTED if all(o.result in (*FINE, allowed) for _, o in outcomes) else FAILS
    return PASSES if fine else FAILS


def how(outcomes: Outcomes) -> str:
    """Describes what made the entry's gradients: a rule, the tape, or ordinary autograd outside of regions."""
    names = sorted({name for _, outcome in outcomes for name in outcome.how})
    tape = [name[6:] for name in names if name.startswith("tape: ")]
    autograd = [name[10:] for name in names if name.startswith("autograd: ")]
    parts = ["rule"] if "rule" in names else []
    parts += ["tape (" + ", ".join(tape) + ")"] if tape else []
    parts += ["autograd (" + ", ".join(autograd) + ")"] if autograd else []
    return "; ".join(parts) or "none"


def row(name: str, outcomes: Outcomes, complete: bool = True, exceptions: Exceptions = EXCEPTIONS) -> dict[str, Any]:
    """Returns one line of the table as data."""
    return {
        "name": name,
        "verdict": verdict(name, outcomes, complete, exceptions),
        "how": how(outcomes),
        "samples": len(outcomes),
        "results": dict(Counter(outcome.result for _, outcome in outcomes)),
        "reason": exceptions[name].reason if name in exceptions else "",
        "details": [f"{sample}: {o.result}: {o.detail}" for sample, o in outcomes if o.result not in FINE],
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Returns the totals in one paragraph."""
    verdicts = Counter(each["verdict"] for each in rows)
    kinds = Counter("no gradient" if each["how"] == "none" else each["how"].split(" ")[0].rstrip(";") for each in rows)
    samples = sum(each["samples"] for each in rows)
    return (
        f"{len(rows)} entries, {samples} samples: "
        + ", ".join(f"{n} {v}" for v, n in verdicts.items())
        + ". Gradients: "
        + ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        + "."
    )


def write(rows: list[dict[str, Any]], folder: Path, stem: str = "conformance") -> None:
    """Writes ``<stem>.json`` and ``<stem>.md`` to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.json").write_text(json.dumps(rows, indent=1))
    lines = ["# PyTorch's operators and modules, lowered", "", summary(rows), ""]
    lines += ["| entry | gradient by | result | samples |", "|---|---|---|---|"]
    for each in rows:
        reason = f": {each['reason']}" if each["reason"] else ""
        lines.append(f"| {each['name']} | {each['how']} | {each['verdict']}{reason} | {each['samples']} |")
    (folder / f"{stem}.md").write_text("\n".join(lines) + "\n")
