"""Checks that each test that docs/seeds.md names exists, and with ``--run`` that it passes."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TABLE = REPOSITORY / "docs" / "seeds.md"
CPP_TESTS = ("aten_recompute_tests", "aten_recompute_planner_tests", "aten_recompute_arena_tests")


def named_tests(text: str) -> tuple[list[str], list[str], list[str]]:
    """Returns the tests that the last column of each row names, of pytest and of GoogleTest, and rows without one."""
    python, cpp, without = [], [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or cells[0] == "there" or set(cells[0]) <= set("- "):
            continue
        found = re.fullmatch(r"`([^`]+)`", cells[-1])
        if found is None or "no" in (cell.lower() for cell in cells):
            without.append(cells[0])
        elif found[1].startswith("tests/"):
            python.append(found[1])
        else:
            cpp.append(found[1])
    return python, cpp, without


def missing_python_tests(tests: list[str]) -> list[str]:
    files = sorted({test.partition("::")[0] for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout
    known = {line.partition("[")[0] for line in listed.splitlines()}
    known |= {line.partition("::")[0] for line in known}
    return [test for test in tests if test not in known]


def cpp_programs(folder: Path) -> dict[str, set[str]]:
    """Returns the names of the tests in each program of C++ tests in the folder."""
    programs = {}
    for name in CPP_TESTS:
        program = folder / name
        listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        suite, tests = "", set()
        for line in listed.splitlines():
            if line.startswith("  "):
                tests.add(suite + line.strip().partition(" ")[0].partition("/")[0])
            else:
                suite = line.strip().rpartition("/")[2]
        programs[str(program)] = tests
    return programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="run the tests as well")
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build", help="where the C++ tests are")
    arguments = parser.parse_args()
    python, cpp, without = named_tests(TABLE.read_text(encoding="utf-8"))
    programs = cpp_programs(arguments.build)
    missing = missing_python_tests(python)
    missing += [test for test in cpp if not any(test in tests for tests in programs.values())]
    for row in without:
        print(f'{TABLE.name}: the row "{row}" names no test', file=sys.stderr)
    for test in missing:
        print(f"{TABLE.name}: there is no test {test}", file=sys.stderr)
    if missing or without:
        return 1
    print(f"{TABLE.name}: {len(python) + len(cpp)} rows, each with a test that exists")
    if not arguments.run:
        return 0
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", *sorted(set(python))], cwd=REPOSITORY).returncode
    for program, tests in programs.items():
        if chosen := sorted(set(cpp) & tests):
            status |= subprocess.run([program, "--gtest_brief=1", "--gtest_filter=" + ":".join(chosen)]).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
