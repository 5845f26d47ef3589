"""``python -m failing_memory`` tries points at which a request for memory fails; ``--points 0`` tries all of them."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from .memory import KINDS, NEW, PRELOAD, TENSORS, Memory
from .points import PHASES, Points, Trial, leaked_blocks, spread, summary
from .scenes import SCENES


def main() -> int:
    parser = argparse.ArgumentParser(prog="failing_memory", description=__doc__)
    parser.add_argument("scenes", nargs="*", help=f"the networks to train: {', '.join(SCENES)} (default: all)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="what fails (default: every kind)")
    parser.add_argument("--phase", choices=PHASES, action="append", help="the step that fails (default: every one)")
    parser.add_argument(
        "--points",
        type=int,
        default=0,
        help="try at most so many points of each step, spread evenly; 0: all of them (default: %(default)s)",
    )
    parser.add_argument("--only", type=int, help="try this point alone, and print the error")
    parser.add_argument("--and-later", action="store_true", help="let all requests after the point fail, too")
    parser.add_argument("--leaks", action="store_true", help="look for blocks of operator new that stay (slow)")
    arguments = parser.parse_args()
    unknown = [scene for scene in arguments.scenes if scene not in SCENES]
    if unknown:
        parser.error(f"no scene {unknown[0]!r}; there are: {', '.join(SCENES)}")
    kinds = arguments.kind or list(KINDS)
    if len(kinds) == 1:
        return _run(arguments, kinds[0])
    # The allocators stand in front of others once and for all, so each kind gets a process.
    status = 0
    given = [argument for argument in sys.argv[1:] if argument != "--kind" and argument not in KINDS]
    for kind in kinds:
        status |= subprocess.run([sys.executable, "-m", __package__, *given, "--kind", kind], check=False).returncode
    return status


def _run(arguments: argparse.Namespace, kind: str) -> int:
    if kind != TENSORS and str(PRELOAD) not in os.environ.get("LD_PRELOAD", ""):
        if not PRELOAD.exists():
            print(f"{PRELOAD.name} is not in {PRELOAD.parent}: run `make build` first", file=sys.stderr)
            return 2
        environment = {**os.environ, "LD_PRELOAD": f"{PRELOAD} {os.environ.get('LD_PRELOAD', '')}".strip()}
        os.execve(sys.executable, [sys.executable, "-m", str(__package__), *sys.argv[1:]], environment)

    import torch

    # A fork has one thread. Sums of several threads would have other last bits, too.
    torch.set_num_threads(1)
    # All tensors lie in arenas, however small they are.
    os.environ.setdefault("RECOMPUTE_LOGS", "all=error")  # budgets are out of reach on purpose
    os.environ.setdefault("RECOMPUTE_ARENA_MIN_BYTES", "1")
    os.environ.setdefault("RECOMPUTE_ARENA_POISON", "1")
    memory = Memory(kind)
    total = failed = 0
    for scene in arguments.scenes or SCENES:
        for phase in arguments.phase or PHASES:
            points = Points(SCENES[scene], phase, memory)
            if arguments.only is not None:
                print(f"{scene}, {phase} step: {points.count} requests", flush=True)
                memory.print_places()
                trial = _try(points, arguments.only, arguments)
                print(trial)
                failed += bool(trial.problem)
                continue
            numbers = spread(points.count, arguments.points) if arguments.points else range(1, points.count + 1)
            trials = {n: _try(points, n, arguments) for n in numbers}
            found = summary(trials)
            total += found["points"]
            failed += len(found["problems"])
            print(
                f"{kind}: {scene}, {phase} step: {points.count} requests, {found['points']} points tried, "
                f"{found['raised']} raised an error, {len(found['problems'])} problems",
                flush=True,
            )
            for n, problem in list(found["problems"].items())[:20]:
                print(f"  request {n}: {problem}", flush=True)
    print(f"{kind}: {total} points, {failed} problems")
    return 1 if failed else 0


def _try(points: Points, n: int, arguments: argparse.Namespace) -> Trial:
    if arguments.leaks and points.memory.kind == NEW:
        return leaked_blocks(points, n)
    return points.try_point(n, arguments.and_later)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    raise SystemExit(main())
