"""Builds the C++ library and the command with CMake and puts them, headers and CMake package into the Python package.

``pip install --no-build-isolation .`` builds against the torch of the interpreter that runs this script. With build
isolation, pip would download another torch to build against.

Environment variables:
    ATEN_RECOMPUTE_TORCH: folders of torch packages, separated by colons. One library is built for each of them, and
        the package picks the one for the torch that imports it. ``tools/make_wheel.py`` sets it.
    ATEN_RECOMPUTE_MANYLINUX: if set, the wheel's name says which systems have what the libraries need, such as
        manylinux_2_35_x86_64. Otherwise it is for systems like this one.
    ATEN_RECOMPUTE_DEBUG_FILES: a folder. The debug information of the libraries goes there, instead of staying in them.
    Torch_DIR: the folder of TorchConfig.cmake, if ATEN_RECOMPUTE_TORCH is not set.
    JOBS: how many files are compiled at once.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.append(str(ROOT))
NAME = "libaten_recompute.so"
COMMAND = "aten-recompute"
OLDEST_SETUPTOOLS = (70, 1)  # the first one that makes wheels without another package


def check_setuptools() -> None:
    """Ends the script with one line if setuptools is too old to make a wheel: it would name a command instead."""
    import setuptools

    found = tuple(int(part) for part in re.findall(r"\d+", setuptools.__version__)[:2])
    if found < OLDEST_SETUPTOOLS:
        wanted = ".".join(map(str, OLDEST_SETUPTOOLS))
        sys.exit(
            f"aten_recompute: setuptools {setuptools.__version__} cannot make wheels: "
            f'run `{sys.executable} -m pip install "setuptools>={wanted}"`, then the same command again'
        )


check_setuptools()

from setuptools import Extension, setup  # noqa: E402
from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402
from setuptools.command.build_ext import build_ext  # noqa: E402


def read_version() -> str:
    """Returns the version in CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text()
    match = re.search(r"project\(aten_recompute VERSION ([0-9.]+)", text)
    if match is None:
        raise RuntimeError("CMakeLists.txt names no version: project(aten_recompute VERSION ...) is missing")
    return match.group(1)


def torch_folders() -> list[Path]:
    """Returns the torch packages to build against."""
    named = os.environ.get("ATEN_RECOMPUTE_TORCH")
    if named:
        return [Path(each).resolve() for each in named.split(os.pathsep)]
    torch_dir = os.environ.get("Torch_DIR")  # noqa: SIM112  (the name of CMake's variable)
    if torch_dir:
        return [Path(torch_dir).resolve().parents[2]]
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(
            f"aten_recompute: {sys.executable} has no torch to build against: install torch first, and pass "
            "--no-build-isolation to pip"
        )
    return [Path(spec.submodule_search_locations[0])]


def torch_version(torch: Path) -> str:
    """Returns the version of a torch package, such as 2.13.0+cpu, or of a LibTorch without Python, such as 2.13.0."""
    cmake = torch / "share" / "cmake" / "Torch" / "TorchConfigVersion.cmake"
    if not cmake.is_file():
        sys.exit(f"aten_recompute: {torch} is no torch package: {cmake} is missing")
    file = torch / "version.py"
    pattern = r"__version__ = '(\d+\.\d+[^']*)'"
    if not file.is_file():
        file, pattern = cmake, r'PACKAGE_VERSION "(\d+\.\d+[^"]*)"'
    match = re.search(pattern, file.read_text())
    if match is None:
        sys.exit(f"aten_recompute: {file} names no version")
    return match.group(1)


def minor_version(torch: Path) -> str:
    """Returns the version of a torch package without what comes after the second number, such as 2.13."""
    return ".".join(torch_version(torch).split(".")[:2])


def is_built_for(build: Path, torch: Path) -> bool:
    """Returns whether a folder is configured for this version of torch, so that little has to be compiled in it."""
    try:
        cache = (build / "CMakeCache.txt").read_text()
    except OSError:
        return False
    known = dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE))
    root = Path(known.get("ATEN_RECOMPUTE_TORCH_ROOT_OF_BUILD", "/none"))
    return (
        known.get("CMAKE_HOME_DIRECTORY") == str(ROOT)
        and known.get("ATEN_RECOMPUTE_COMMAND") == "ON"
        and known.get("CMAKE_BUILD_TYPE") == "RelWithDebInfo"
        and root.is_dir()
        and torch_version(root) == torch_version(torch)
    )


def build_library(torch: Path) -> Path:
    """Builds library and command for a torch package. Returns the build folder, which stays for the next time."""
    minor = minor_version(torch)
    build = ROOT / "build"
    if not is_built_for(build, torch):
        build = build / f"torch-{minor}"
    if not is_built_for(build, torch):
        off = [f"-DATEN_RECOMPUTE_{part}=OFF" for part in ("TESTS", "EXAMPLES", "BENCHMARKS")]
        subprocess.check_call(
            [
                *("cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *off),
                "-DATEN_RECOMPUTE_COMMAND=ON",
                *(f"-DPython_EXECUTABLE={sys.executable}", f"-DTorch_DIR={torch / 'share' / 'cmake' / 'Torch'}"),
            ]
        )
    print(f"aten_recompute: building the library for torch {minor} in {build}: minutes, if it is new", flush=True)
    jobs = os.environ.get("JOBS", str(os.cpu_count() or 1))
    subprocess.check_call(["cmake", "--build", str(build), "-j", jobs, "--target", "aten_recompute", COMMAND])
    return build


def split_debug_information(library: Path, folder: Path) -> None:
    """Moves the debug information of a library into a file in ``folder``, where debuggers look for it by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    debug = folder / f"{library.name}.debug"
    subprocess.check_call(["objcopy", "--only-keep-debug", str(library), str(debug)])
    subprocess.check_call(["strip", "--strip-unneeded", str(library)])
    subprocess.check_call(["objcopy", f"--add-gnu-debuglink={debug}", str(library)])


class CMakeBuild(build_ext):
    """Builds a library for each torch and installs it, the headers and the CMake package into the Python package."""

    def run(self) -> None:
        package = (ROOT / "python" if self.inplace else Path(self.build_lib).resolve()) / "aten_recompute"
        shutil.rmtree(package / "lib", ignore_errors=True)  # libraries of an earlier build
        for program in ("cmake", "ninja"):
            if shutil.which(program) is None:
                sys.exit(
                    f"aten_recompute: {program} is not installed; on Debian 12, `make setup` installs what is needed"
                )
        for torch in torch_folders():
            build = build_library(torch)
            install = ["cmake", "--install", str(build), "--prefix", str(package), "--component", "wheel"]
            subprocess.check_call(install)
            debug_files = os.environ.get("ATEN_RECOMPUTE_DEBUG_FILES")
            if debug_files:
                folder = f"torch-{minor_version(torch)}"
                for name in (NAME, COMMAND):
                    split_debug_information(package / "lib" / folder / name, Path(debug_files).resolve() / folder)

    def get_outputs(self) -> list[str]:
        return []


class Wheel(bdist_wheel):
    """A wheel for any Python 3, as the library does not call Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        if os.environ.get("ATEN_RECOMPUTE_MANYLINUX"):
            from tools.check_library import platform_tag

            package = Path(self.bdist_dir)
            platform = platform_tag(sorted([*package.rglob(NAME), *package.rglob(f"lib/*/{COMMAND}")]))
        return "py3", "none", platform


setup(
    version=read_version(),
    # An extension without sources makes setuptools build a wheel for this platform only.
    ext_modules=[Extension("aten_recompute.libaten_recompute", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": Wheel},
)
