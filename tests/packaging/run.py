"""Tries the wheel of ``dist/`` and the source as an outsider does, in empty environments.

    python tests/packaging/run.py [--torch 2.13.0] [--without-source]

For each version of torch (default: the one of this interpreter), an environment with torch and the wheel alone trains
the README's example; a CMake project finds the package through Python, and another through an installed prefix; and a
program opens the library. A third project takes the source in. Then ``pip install --no-build-isolation .`` is tried as
the README says it, with the setuptools that a new environment has and with a new one. Nothing of the checkout is on any
path.

Environments stay in ``build/packaging``; what is installed in them is installed anew.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "packaging"

# What would lead to the checkout or to its library.
HIDDEN = (
    "PYTHONPATH",
    "RECOMPUTE_LIBRARY",
    "ATEN_RECOMPUTE_LIBRARY",
    "LD_LIBRARY_PATH",
    "CMAKE_PREFIX_PATH",
    "Torch_DIR",
)

# The inputs of the network in train.py, as the command takes them.
ESTIMATED = ("--input", "float32[256,32]", "--input", "float32[256,32]")


def run(*command: str | Path, cwd: Path = WORK) -> str:
    """Runs a command. Returns what it prints; ends the script if it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in HIDDEN}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"packaging: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def fails(*command: str | Path, cwd: Path = WORK) -> str:
    """Runs a command that has to fail. Returns what it prints, to standard error too."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        sys.exit(f"packaging: {' '.join(map(str, command))} should have failed")
    return done.stdout + done.stderr


class Step:
    """Says what is tried, and how long it took."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        self.begin = time.monotonic()

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None:
            print(f"packaging: {self.what}: {time.monotonic() - self.begin:.0f} s", flush=True)


def environment(name: str, torch: str) -> Path:
    """Returns the interpreter of an environment that has torch alone."""
    folder = WORK / name
    python = folder / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", f"torch=={torch}")
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "aten_recompute")
    return python


def build(source: Path, folder: Path, *options: str) -> None:
    """Configures and builds a CMake project from nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)
    run("cmake", "--build", folder)


def try_wheel(wheel: Path, torch: str) -> None:
    """Trains with the wheel from Python, and from C++ programs that find it."""
    files = WORK / f"files-{torch}"
    files.mkdir(parents=True, exist_ok=True)
    with Step(f"torch {torch}: an environment with torch and the wheel"):
        python = environment(f"wheel-{torch}", torch)
        run(python, "-m", "pip", "install", "--quiet", wheel)
    with Step(f"torch {torch}: Python trains the README's example"):
        print("  " + run(python, HERE / "train.py", files))
    with Step(f"torch {torch}: the command of the wheel estimates, with LibTorch beside the package and elsewhere"):
        command = (python.with_name("aten-recompute"), "estimate", files / "plain.pt", *ESTIMATED)
        print("  " + run(*command).splitlines()[0])
        elsewhere = WORK / f"elsewhere-{torch}"
        shutil.rmtree(elsewhere, ignore_errors=True)
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", elsewhere, wheel)
        module = f"import sys; sys.path.insert(0, {str(elsewhere)!r}); import aten_recompute_command as c; c.main()"
        assert run(*command) == run(python, "-c", module, *command[1:])
    with Step(f"torch {torch}: a CMake project finds the wheel through Python, and trains"):
        prefix = run(python, "-c", "import aten_recompute; print(aten_recompute.cmake_prefix_path)")
        build(HERE / "linked", files / "linked", f"-DCMAKE_PREFIX_PATH={prefix}")
        print("  " + run(files / "linked" / "linked", files / "plain.pt", files / "lowered.pt").splitlines()[-1])
    with Step(f"torch {torch}: a program opens the library"):
        library = run(python, "-c", "import aten_recompute; print(aten_recompute.library_path())")
        root = run(python, "-c", "import torch; print(torch.__path__[0])")
        build(HERE / "dlopen", files / "opened", f"-DTORCH_ROOT={root}")
        print("  " + run(files / "opened" / "opened", library, files / "lowered.pt"))


def try_prefix(torch: str) -> None:
    """Trains with a CMake project that finds an installed prefix."""
    with Step("a CMake project finds an installed prefix, and trains"):
        files = WORK / f"files-{torch}"
        prefix = WORK / "prefix"
        shutil.rmtree(prefix, ignore_errors=True)
        run("cmake", "--install", ROOT / "build", "--prefix", prefix)
        build(
            HERE / "linked", files / "prefix", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPython_EXECUTABLE={sys.executable}"
        )
        print("  " + run(files / "prefix" / "linked", files / "plain.pt", files / "lowered.pt").splitlines()[-1])


def try_taken_in(torch: str) -> None:
    """Trains with a CMake project that compiles the source along with its own."""
    with Step("a CMake project takes the source in, and trains"):
        files = WORK / f"files-{torch}"
        build(
            HERE / "taken_in", files / "taken_in", f"-DSOURCE_OF_ATEN_RECOMPUTE={ROOT}",
            f"-DPython_EXECUTABLE={sys.executable}",
        )  # fmt: skip
        print("  " + run(files / "taken_in" / "taken_in", files / "plain.pt", files / "lowered.pt").splitlines()[-1])


def try_source(torch: str) -> None:
    """Installs the source as the README says it."""
    python = environment(f"source-{torch}", torch)
    install = (python, "-m", "pip", "install", "--no-build-isolation", ".")
    with Step("pip install . with an old setuptools says what to do"):
        run(python, "-m", "pip", "install", "--quiet", "setuptools==65.5.0")
        said = fails(*install, cwd=ROOT)
        lines = [line.strip() for line in said.splitlines() if "aten_recompute: setuptools 65.5.0" in line]
        assert lines, said
        print("  " + lines[0])
    with Step("pip install . with a new setuptools, and the README's example"):
        run(python, "-m", "pip", "install", "--quiet", "setuptools>=70.1")
        run(*install, cwd=ROOT)
        files = WORK / "files-source"
        files.mkdir(exist_ok=True)
        print("  " + run(python, HERE / "train.py", files))


def main() -> None:
    """Tries what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    present = version("torch").partition("+")[0]
    parser.add_argument("--torch", nargs="+", default=[present], help=f"versions of torch (default: {present})")
    parser.add_argument("--without-source", action="store_true", help="try the wheel only")
    arguments = parser.parse_args()
    wheels = sorted((ROOT / "dist").glob("aten_recompute-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit("packaging: there is no wheel in dist/: run `make wheel` first")
    WORK.mkdir(parents=True, exist_ok=True)
    for torch in arguments.torch:
        try_wheel(wheels[-1], torch)
    if not arguments.without_source:
        try_prefix(arguments.torch[0])
        try_taken_in(arguments.torch[0])
        try_source(arguments.torch[0])


if __name__ == "__main__":
    main()
