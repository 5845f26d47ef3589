#!/usr/bin/env python3
"""Builds one wheel with a library and the command for each of several versions of torch.

    tools/make_wheel.py                         a library for the torch of this interpreter
    tools/make_wheel.py 2.11.0 2.13.0 2.15.0    one for each of these versions, which pip downloads
    tools/make_wheel.py .venv/lib/python3.11/site-packages/torch 2.15.0

The wheel goes to ``dist/``, and the debug information of these to ``dist/debug/``. Compiling for a version
takes minutes the first time, and seconds later on: ``build/torch-<version>`` stays. A folder ``build/`` that is
configured for one of the versions is used for that one.

A downloaded torch is never run, so it needs none of the packages that it depends on. It stays in
``build/torch-packages``.
"""

import argparse
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tools import check_library  # noqa: E402  (the path above leads to it)


def torch_package(named: str) -> Path:
    """Returns the folder of a torch package: a folder that is named, or one that pip fills with a version."""
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", named):
        return Path(named)
    folder = ROOT / "build" / "torch-packages" / named
    if not (folder / "torch").is_dir():
        print(f"make_wheel: downloading torch {named} to build against", flush=True)
        wanted = f"torch=={named}" if named.count(".") == 2 else f"torch=={named}.*"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), wanted]
        if subprocess.call(pip) != 0:
            sys.exit(f"make_wheel: pip cannot install {wanted}; see its message above")
    return folder / "torch"


def build(torch_packages: list[str], output: Path, manylinux: bool) -> Path:
    """Builds the wheel. Returns its path."""
    os.chdir(ROOT)
    os.environ["ATEN_RECOMPUTE_DEBUG_FILES"] = str(output / "debug")
    if torch_packages:
        folders = [torch_package(each).resolve() for each in torch_packages]
        os.environ["ATEN_RECOMPUTE_TORCH"] = os.pathsep.join(map(str, folders))
    if manylinux:
        os.environ["ATEN_RECOMPUTE_MANYLINUX"] = "1"
    from setuptools import build_meta

    output.mkdir(parents=True, exist_ok=True)
    name: str = build_meta.build_wheel(str(output))
    return output / name


def check(wheel: Path) -> list[str]:
    """Prints the size of each library and command in a wheel. Returns what is wrong, one line for each thing."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        folder = ROOT / "build" / "wheel-check"
        for entry in archive.infolist():
            is_library = entry.filename.endswith(".so")
            if not is_library and Path(entry.filename).name != "aten-recompute":
                continue
            library = Path(archive.extract(entry, folder))
            sizes = f"{entry.file_size / 1e6:.1f} MB, {entry.compress_size / 1e6:.1f} MB compressed"
            print(f"make_wheel: {entry.filename}: {sizes}")
            problems = check_library.problems if is_library else check_library.problems_of_program
            found += [f"{entry.filename} {problem}" for problem in problems(library)]
    print(f"make_wheel: {wheel}: {wheel.stat().st_size / 1e6:.1f} MB")
    return found


def main() -> None:
    """Builds and checks a wheel as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", nargs="*", help="a version of torch, or the folder of a torch package")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder of the wheel (default: dist)")
    parser.add_argument("--linux", action="store_true", help="do not name the oldest system that the wheel runs on")
    arguments = parser.parse_args()
    problems = check(build(arguments.torch, arguments.output.resolve(), not arguments.linux))
    if problems:
        sys.exit("\n".join(f"make_wheel: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
