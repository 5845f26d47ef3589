"""``python -m hostile --seconds 600`` tries hostile options, plans, files and command lines for ten minutes each."""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.memory import BUILT

from .kinds import CORPUS, KINDS
from .sandbox import judge_in_fork

# Read in C++, without LibTorch: a thousand times as many inputs.
TEXTS = ("spec", "plan", "problem")
READER = Path(BUILT).parent / "aten_recompute_hostile"


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"what is tried: {', '.join([*TEXTS, *KINDS])} (default: all)")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the inputs (default: a random one, which is printed)")
    arguments = parser.parse_args()
    unknown = [kind for kind in arguments.kinds if kind not in TEXTS and kind not in KINDS]
    if unknown:
        parser.error(f"no kind {unknown[0]!r}; there are: {', '.join([*TEXTS, *KINDS])}")
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    failed = 0
    for kind in arguments.kinds or [*TEXTS, *KINDS]:
        if kind in TEXTS:
            failed |= _read(kind, arguments.seconds, seed)
        else:
            failed |= _try(kind, arguments.seconds, seed)
    return failed


def _read(kind: str, seconds: float, seed: int) -> int:
    if not READER.exists():
        print(f"{READER.name} is not in {READER.parent}: run `make build` first", file=sys.stderr)
        return 2
    done = subprocess.run([str(READER), kind, str(CORPUS / kind), str(seconds), str(seed)], check=False)
    return int(done.returncode != 0)


def _try(kind: str, seconds: float, seed: int) -> int:
    import torch

    import aten_recompute

    aten_recompute.set_logs("all=error")  # many budgets are out of reach
    torch.set_num_threads(1)  # forks have one thread, and sums of several have other last bits
    chosen = KINDS[kind]
    draw = random.Random(seed)
    begin = time.monotonic()
    count = accepted = 0
    while time.monotonic() - begin < seconds:
        inputs = [chosen.draw(draw) for _ in range(chosen.batch)]
        judged, of_these, finding = judge_in_fork(inputs, chosen.judge)
        count += judged
        accepted += of_these
        if finding is not None:
            print(f"{kind}: {finding.text}\n  seed {seed}, input {inputs[finding.index]!r:.3000}", flush=True)
            return 1
    passed = time.monotonic() - begin
    print(
        f"{kind}: {count} inputs in {passed:.1f} s, {count / passed:.1f} per second, {accepted} accepted, seed {seed}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    os.environ.setdefault("RECOMPUTE_ARENA_MIN_BYTES", "1")
    os.environ.setdefault("RECOMPUTE_ARENA_POISON", "1")
    raise SystemExit(main())
