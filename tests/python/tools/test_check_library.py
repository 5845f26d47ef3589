"""``tools/check_library.py`` says what a built library needs of the system, and what it shows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aten_recompute
from tools import check_library

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(shutil.which("nm") is None, reason="binutils is not installed")


def run(*arguments: str) -> tuple[int, str, str]:
    """Returns the exit status of the script and what it prints, to standard output and to standard error."""
    command = [sys.executable, str(ROOT / "tools" / "check_library.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.strip()


def compiled(folder: Path, source: str, *flags: str) -> Path:
    """Returns a shared library that is compiled from this source."""
    if shutil.which("c++") is None:
        pytest.skip("there is no compiler")
    (folder / "source.cpp").write_text(source)
    library = folder / "library.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", library, folder / "source.cpp", *flags], check=True)
    return library


def test_the_library_needs_libtorch_and_the_runtime_and_shows_the_api_alone() -> None:
    status, printed, said = run(str(aten_recompute.library_path()))
    assert (status, said) == (0, "")
    assert "libtorch_cpu.so" in printed
    assert "so it runs on manylinux_2_" in printed


def test_headers_declare_the_functions_of_the_api() -> None:
    functions, types = check_library.declared_names()
    assert {"aten_recompute::lower", "aten_recompute::version", "aten_recompute::passes::run"} <= functions
    assert "aten_recompute::one_line" not in functions  # it is defined in its header
    assert {"aten_recompute::OperatorRule", "aten_recompute::passes::Arguments"} <= types


def test_what_else_a_library_needs_and_shows_is_named(tmp_path: Path) -> None:
    source = "namespace aten_recompute { struct Inner {}; void lower() {} void plan(Inner) {} void inner() {} }\n"
    source += "int helper() { return 1; }"
    library = compiled(tmp_path, source, "-Wl,--no-as-needed", "-lresolv")
    status, _, said = run(str(library))
    assert status == 1
    lines = [line.partition(": ")[2] for line in said.splitlines()]
    assert "needs libresolv.so.2" in lines
    assert "shows aten_recompute::inner, which no header declares" in lines
    assert "shows aten_recompute::plan of aten_recompute::Inner, which no header declares" in lines
    assert "shows helper, which no header declares" in lines
    assert "does not show aten_recompute::version" in lines
    assert not any("aten_recompute::lower" in line for line in lines)


def test_the_platform_is_the_oldest_that_has_all_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    needs: dict[str, dict[str, tuple[int, ...]]] = {
        "old": {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 20)},
        "new glibc": {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 20)},
        "new runtime": {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 30), "GCC": (3, 4)},
        "of the future": {"GLIBC": (3, 0)},
    }
    monkeypatch.setattr(check_library, "needed_versions", lambda library: needs[library.name])
    assert check_library.platform_tag([Path("old")]) == "manylinux_2_28_x86_64"
    assert check_library.platform_tag([Path("old"), Path("new glibc")]) == "manylinux_2_34_x86_64"
    assert check_library.platform_tag([Path("new glibc"), Path("new runtime")]) == "manylinux_2_35_x86_64"
    with pytest.raises(ValueError, match=r"no manylinux platform has GLIBC 3\.0"):
        check_library.platform_tag([Path("of the future")])


@pytest.mark.parametrize("arguments", [[], ["no such file"]])
def test_without_a_library_there_is_one_line(arguments: list[str]) -> None:
    status, printed, said = run(*arguments)
    assert (status, printed) == (2, "")
    assert len(said.splitlines()) == 1
