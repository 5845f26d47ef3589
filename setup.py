"""Builds the C++ library with CMake, against the torch of the interpreter that runs this.

``pip install --no-build-isolation .`` takes the torch that is installed; with build isolation pip would download
another one to build against.
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
    """The version that CMakeLists.txt names."""
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(aten_recompute VERSION ([0-9.]+)", text).group(1)


class CMakeBuild(build_ext):
    """Installs the library, its headers and its CMake package into the Python package."""

    def run(self):
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
        if "Torch_DIR" in os.environ:
            configure.append(f"-DTorch_DIR={os.environ['Torch_DIR']}")
        subprocess.check_call(configure)
        subprocess.check_call(
            ["cmake", "--build", str(build_dir), "-j", os.environ.get("JOBS", str(os.cpu_count() or 1))]
        )
        subprocess.check_call(["cmake", "--install", str(build_dir), "--prefix", str(package_dir / "aten_recompute")])

    def get_outputs(self):
        return []


setup(
    version=read_version(),
    # No source for setuptools to compile: it makes the wheel one for this platform.
    ext_modules=[Extension("aten_recompute.libaten_recompute", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
