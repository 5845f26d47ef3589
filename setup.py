"""Builds the C++ library with CMake, against the torch of the interpreter that runs this script.

``pip install --no-build-isolation .`` builds against the torch that is installed. With build isolation, pip would
download another torch to build against.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def read_version() -> str:
    """Returns the version in CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text()
    match = re.search(r"project\(aten_recompute VERSION ([0-9.]+)", text)
    if match is None:
        raise RuntimeError("CMakeLists.txt names no version: project(aten_recompute VERSION ...) is missing")
    return match.group(1)


class CMakeBuild(build_ext):
    """Builds the library and installs it, its headers and its CMake package into the Python package."""

    def run(self) -> None:
        build_dir = Path(self.build_temp).resolve()
        package_dir = ROOT / "python" if self.inplace else Path(self.build_lib).resolve()
        configure = [
            "cmake",
            "-S",
            str(ROOT),
            "-B",
            str(build_dir),
            "-G",
            "Ninja",
            f"-DPython_EXECUTABLE={sys.executable}",
            "-DCMAKE_INSTALL_LIBDIR=lib",
            "-DATEN_RECOMPUTE_TESTS=OFF",
            "-DATEN_RECOMPUTE_EXAMPLES=OFF",
            "-DATEN_RECOMPUTE_BENCHMARKS=OFF",
        ]
        torch_dir = os.environ.get("Torch_DIR")  # noqa: SIM112  (the name of CMake's variable)
        if torch_dir is not None:
            configure.append(f"-DTorch_DIR={torch_dir}")
        subprocess.check_call(configure)
        subprocess.check_call(
            ["cmake", "--build", str(build_dir), "-j", os.environ.get("JOBS", str(os.cpu_count() or 1))]
        )
        subprocess.check_call(["cmake", "--install", str(build_dir), "--prefix", str(package_dir / "aten_recompute")])

    def get_outputs(self) -> list[str]:
        return []


setup(
    version=read_version(),
    # An extension without sources makes setuptools build a wheel for this platform only.
    ext_modules=[Extension("aten_recompute.libaten_recompute", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
