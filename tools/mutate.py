#!/usr/bin/env python3
"""Changes the code in many small ways, and counts the changes that no test notices.

    tools/mutate.py                                     # 300 mutants of planner/, runtime/ and ir/memory_reuse.cpp
    tools/mutate.py --count 40 --seed 7 planner/search  # of other sources, others of them
    tools/mutate.py --list planner/graph                # shows the mutants and builds nothing
    tools/mutate.py --log mutants.txt                   # goes on where an earlier run with this file was stopped

A mutant is the code with one comparison, one operator, one truth value or one whole number changed. For each, the
programs of C++ tests that know its source are built and run; where they pass, so are the Python tests of ``--python``
and those of RELATED_TESTS (none of these with ``--python`` alone). A mutant is killed if one does not pass, or not
within a time limit. One that does not compile counts as neither.

Each job works in a clone of the last commit, build/mutation/<job>, whose first build takes as long as any from nothing.
Survivors are printed as ``file:line: before -> after``, and the exit status is 1 if fewer than ``--at-least`` per cent
were killed. With ``--log``, each outcome is a line of that file as soon as it is known, and a mutant that has a line
there is not tried again.
"""

import argparse
import concurrent.futures
import os
import queue
import random
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tqdm import tqdm

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = ("planner", "runtime", "ir/memory_reuse.cpp")
# What runs where the C++ tests pass. It is short, as it runs for each of these mutants.
PYTHON_TESTS = ("tests/python/behavior/test_interrupted_steps.py", "tests/python/planning/test_several_regions.py")
# What runs besides for mutants of these sources, which the C++ tests hardly reach.
RELATED_TESTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "runtime/autocast.cpp": ("behavior/test_autocast_blocks.py", "behavior/test_autocast.py"),
        "runtime/inner_gradient.cpp": ("behavior/test_inner_grad.py", "behavior/test_inner_gradients.py"),
        "runtime/sliced.cpp": ("planning/test_slices.py",),
        "runtime/tape.cpp": ("lowering/test_autograd.py", "rules/test_register_rule.py", "rules/test_rules.py"),
        "runtime/tape_reach.cpp": ("lowering/test_autograd.py", "rules/test_rules.py"),
        "runtime/undefined_gradients.cpp": ("lowering/test_autograd.py", "planning/test_slices.py"),
    }
)

# Operators stand between spaces, which template arguments and references do not. A replacement is chosen at random.
REPLACEMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r" < ", (" <= ", " > ")),
    (r" <= ", (" < ",)),
    (r" > ", (" >= ", " < ")),
    (r" >= ", (" > ",)),
    (r" == ", (" != ",)),
    (r" != ", (" == ",)),
    (r" && ", (" || ",)),
    (r" \|\| ", (" && ",)),
    (r" \+ ", (" - ",)),
    (r" - ", (" + ",)),
    (r" \* ", (" + ",)),
    (r" \+= ", (" -= ",)),
    (r" -= ", (" += ",)),
    (r"\btrue\b", ("false",)),
    (r"\bfalse\b", ("true",)),
    (r"\bstd::max\b", ("std::min",)),
    (r"\bstd::min\b", ("std::max",)),
    (r"(?<=[(\s])!(?=[\w(])", ("",)),
    (r"(?<![\w.\"'])[0-9]+(?![\w.\"'])", ("+1",)),
)
_COMMENT_OR_STRING = re.compile(r"//.*$|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'")
# Lines whose change says nothing: texts, includes, what only a compiler reads.
_SKIPPED = re.compile(
    r"^\s*(#|//|using |namespace |template|static_assert|log_|throw |TORCH_CHECK|TORCH_INTERNAL)|assert\("
)


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int  # from 1
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before.strip()} -> {self.after.strip()}"


OUTCOMES = ("killed", "survived", "does not compile")


def mutants_of(path: Path, draw: random.Random) -> list[Mutant]:
    """Returns the mutants of a source, one for each place."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if _SKIPPED.search(line):
            continue
        hidden = _COMMENT_OR_STRING.sub(lambda match: " " * len(match[0]), line)
        for pattern, replacements in REPLACEMENTS:
            for match in re.finditer(pattern, hidden):
                chosen = draw.choice(replacements)
                new = str(int(match[0]) + 1) if chosen == "+1" else chosen
                after = line[: match.start()] + new + line[match.end() :]
                found.append(Mutant(str(path.relative_to(REPOSITORY)), number, line, after))
    return found


def choose(sources: list[str], count: int, seed: int) -> list[Mutant]:
    draw = random.Random(seed)
    found: list[Mutant] = []
    for source in sources:
        path = REPOSITORY / source
        if not path.exists():
            sys.exit(f'mutate: there is no "{source}" in the repository')
        for each in [path] if path.is_file() else sorted(path.rglob("*.cpp")):
            found += mutants_of(each, draw)
    return sorted(draw.sample(found, min(count, len(found))), key=lambda each: (each.path, each.line))


def read_log(path: Path | None) -> dict[str, str]:
    """Returns the outcomes that earlier runs wrote, by mutant."""
    if path is None or not path.exists():
        return {}
    lines = [line.partition(": ") for line in path.read_text().splitlines()]
    wrong = [number for number, (outcome, _, _) in enumerate(lines, 1) if outcome not in OUTCOMES]
    if wrong:
        sys.exit(f"mutate: line {wrong[0]} of {path} is no outcome: a log has lines as this tool writes them")
    return {mutant: outcome for outcome, _, mutant in lines}


def programs_for(path: str) -> list[str]:
    """Returns the programs of C++ tests that know a source, the fastest first."""
    if path.startswith("planner/"):
        return ["aten_recompute_planner_tests"]
    arena = ["aten_recompute_arena_tests"] if path.startswith("runtime/arena/") else []
    return [*arena, "aten_recompute_tests"]


class Workplace:
    """A clone with a build of its own."""

    def __init__(self, number: int, python_tests: list[str]) -> None:
        self.folder = REPOSITORY / "build" / "mutation" / str(number)
        self.python_tests = python_tests

    def prepare(self, programs: list[str]) -> None:
        """Brings the clone to the last commit, builds, and checks that the tests pass there."""
        if not (self.folder / ".git").exists():
            self._run(["git", "clone", "--quiet", str(REPOSITORY), str(self.folder)], REPOSITORY, check=True)
        self._run(["git", "fetch", "--quiet", "origin", "HEAD"], check=True)
        self._run(["git", "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], check=True)
        self._run(
            ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}",
             "-DATEN_RECOMPUTE_COMMAND=OFF", "-DATEN_RECOMPUTE_EXAMPLES=OFF", "-DATEN_RECOMPUTE_BATCH=4"],
            check=True,
        )  # fmt: skip
        # This takes long at first; the other clones wait, and find in ccache what this one has compiled.
        jobs = str(os.cpu_count() or 1)
        self._run(["cmake", "--build", "build", "-j", jobs, "--target", *programs], check=True)
        outcome = self.outcome_of_tests(programs)
        if outcome != "survived":
            sys.exit(f"mutate: the tests do not pass without a mutant ({outcome}), see {self.folder}")

    def try_mutant(self, mutant: Mutant) -> str:
        """Returns "killed", "survived" or "does not compile"."""
        path = self.folder / mutant.path
        original = path.read_text()
        lines = original.split("\n")
        assert lines[mutant.line - 1] == mutant.before, "the clone is not at the commit of the mutants"
        lines[mutant.line - 1] = mutant.after
        path.write_text("\n".join(lines))
        try:
            return self.outcome_of_tests(programs_for(mutant.path), mutant.path)
        finally:
            path.write_text(original)

    def outcome_of_tests(self, programs: list[str], path: str = "") -> str:
        """Runs the tests; `path` is the source of the mutant, if there is one."""
        strict = {"RECOMPUTE_LINT": "1", "RECOMPUTE_ARENA_MIN_BYTES": "1", "RECOMPUTE_ARENA_POISON": "1"}
        for program in programs:
            if self._run(["cmake", "--build", "build", "-j", "1", "--target", program]) != 0:
                return "does not compile"
            if self._run([f"build/{program}", "--gtest_brief=1", "--gtest_fail_fast"], environment=strict) != 0:
                return "killed"
        if not self.python_tests:
            return "survived"
        tests = [*self.python_tests, *(f"tests/python/{name}" for name in RELATED_TESTS.get(path, ()))]
        libraries = ["aten_recompute", "aten_recompute_tracking_allocator"]
        if self._run(["cmake", "--build", "build", "-j", "1", "--target", *libraries]) != 0:
            return "does not compile"
        pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        ours = {"PYTHONPATH": "python", "RECOMPUTE_LIBRARY": str(self.folder / "build" / "libaten_recompute.so")}
        return "killed" if self._run([*pytest, *tests], environment=ours) != 0 else "survived"

    def _run(
        self,
        command: list[str],
        folder: Path | None = None,
        check: bool = False,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Returns the exit status; 124 where it took too long, as an endless loop does."""
        process = subprocess.Popen(
            command, cwd=folder or self.folder, env={**os.environ, **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout=3600 if check else 900)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers and tests that it started
            process.wait()
            status = 124
        if check and status != 0:
            sys.exit(f"mutate: {' '.join(command)} ended with {status}")
        return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=list(SOURCES), help="files and folders of the repository")
    parser.add_argument("--count", type=int, default=300, help="how many mutants, of all that there are")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many are tried at once")
    parser.add_argument("--python", nargs="*", default=list(PYTHON_TESTS), metavar="TESTS", help="tests for survivors")
    parser.add_argument("--at-least", type=float, default=90.0, metavar="PER_CENT")
    parser.add_argument("--list", action="store_true", help="show the mutants and build nothing")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write each outcome there; skip mutants that it has")
    options = parser.parse_args()
    mutants = choose(options.sources, options.count, options.seed)
    if options.list:
        print("\n".join(map(str, mutants)))
        return 0

    known = read_log(options.log)
    left = [mutant for mutant in mutants if str(mutant) not in known]
    outcomes = [known[str(mutant)] for mutant in mutants if str(mutant) in known]

    workplaces: queue.Queue[Workplace] = queue.Queue()
    for number in range(min(options.jobs, len(left))):
        workplace = Workplace(number, options.python)
        workplace.prepare(sorted({program for mutant in left for program in programs_for(mutant.path)}))
        workplaces.put(workplace)

    def try_one(mutant: Mutant) -> str:
        workplace = workplaces.get()
        try:
            return workplace.try_mutant(mutant)
        finally:
            workplaces.put(workplace)

    with (
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
        tqdm(total=len(left), unit="mutant", disable=None) as progress,
    ):
        tried = {pool.submit(try_one, mutant): mutant for mutant in left}
        for each in concurrent.futures.as_completed(tried):
            outcomes.append(each.result())
            if options.log:
                with options.log.open("a") as log:
                    log.write(f"{each.result()}: {tried[each]}\n")
            if each.result() == "survived":
                progress.write(str(tried[each]))
            progress.update()
    counts = {outcome: outcomes.count(outcome) for outcome in OUTCOMES}
    compiled = counts["killed"] + counts["survived"]
    share = 100 * counts["killed"] / compiled if compiled else 0.0
    print(f"{len(mutants)} mutants: {counts}; {share:.1f} % of those that compile were killed")
    return 0 if share >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
