#!/usr/bin/env bash
# Installs what building, testing and the demo need, except for what is installed already.
#
#   tools/setup.sh       Debian packages, and a virtual environment in .venv with PyTorch and requirements.txt
#   tools/setup.sh torch the same without requirements.txt, which compiling does not need
#   tools/setup.sh lint  clang-format, and ruff, mypy and pymarkdown in .venv (mypy reads the types of PyTorch there)
#   tools/setup.sh page  a browser
#   tools/setup.sh docs  doxygen, and .venv
#   tools/setup.sh tidy  clang-tidy, and the omp.h that it reads
#
# PYTHON=<interpreter>  use this interpreter, which has PyTorch already; no .venv is made
# Torch_DIR=<folder>    use the LibTorch whose TorchConfig.cmake is in this folder, with PYTHON (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
build_packages=(
  g++ cmake ninja-build ccache
  libboost-graph-dev libspdlog-dev nlohmann-json3-dev libcli11-dev
  libgtest-dev libgmock-dev libbenchmark-dev graphviz zsh mandoc
)

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

# install_packages PACKAGE...: installs those Debian packages that are missing.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "there is no dpkg here; please install these Debian packages, or what your system calls them: $*"
    return
  fi
  local package missing=() as_root=()
  for package in "$@"; do
    if [[ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" != "install ok installed" ]]; then
      missing+=("$package")
    fi
  done
  if ((${#missing[@]} == 0)); then
    return
  fi
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "please install as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# check_python PYTHON MODULE...: checks that the user's interpreter has these modules, and never changes it.
check_python() {
  "$1" - "${Torch_DIR:-}" "${@:2}" <<'PYTHON' || exit 1
import importlib.util
import os
import sys

given, *needed = sys.argv[1:]
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"setup: {sys.executable} lacks {' '.join(missing)}; install them, or leave PYTHON out")
torch_root = importlib.util.find_spec("torch").submodule_search_locations[0]
if given and not os.path.realpath(given).startswith(os.path.realpath(torch_root) + os.sep):
    sys.exit(f"setup: Torch_DIR is {given}, but {sys.executable} imports torch from {torch_root}; "
             "give the PYTHON that belongs to Torch_DIR")
PYTHON
}

# uses_own_python: whether the user named an interpreter or a LibTorch.
uses_own_python() { [[ -n "${PYTHON:-}" || -n "${Torch_DIR:-}" ]]; }

# is_complete STAMP WANTED: whether .venv has a stamp that says so.
is_complete() { [[ -x .venv/bin/python && -f .venv/$1 && "$(<".venv/$1")" == "$2" ]]; }

# make_venv_with_torch: makes .venv with PyTorch. A stamp in it notes for which version.
make_venv_with_torch() {
  local stamp=aten_recompute_torch.txt
  if is_complete $stamp "$torch_version"; then
    return
  fi
  say "making .venv (PyTorch $torch_version is a large download the first time)"
  .venv/bin/python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .venv
  # First and by itself, so that no other package chooses the version of torch.
  # Python compiles what it imports; pip would compile all of it, which takes longer than the rest.
  .venv/bin/python -m pip install --quiet --no-compile "torch==$torch_version"
  echo "$torch_version" >.venv/$stamp
}

# make_venv: makes .venv with PyTorch and requirements.txt.
make_venv() {
  local stamp=aten_recompute_setup.txt wanted
  wanted="torch $torch_version $(cksum <requirements.txt)"
  if is_complete $stamp "$wanted"; then
    return
  fi
  make_venv_with_torch
  say "installing the packages of requirements.txt into .venv"
  .venv/bin/python -m pip install --quiet --no-compile -r requirements.txt
  # Lets .venv/bin/python import this checkout.
  echo "$PWD/python" >"$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/aten_recompute_checkout.pth"
  echo "$wanted" >.venv/$stamp
}

# install_lint_tools: installs ruff, mypy and pymarkdown into .venv, in the versions of requirements-lint.txt.
install_lint_tools() {
  local stamp=aten_recompute_lint.txt wanted
  wanted=$(cksum <requirements-lint.txt)
  if is_complete $stamp "$wanted"; then
    return
  fi
  say "installing ruff, mypy and pymarkdown into .venv"
  .venv/bin/python -m pip install --quiet -r requirements-lint.txt
  echo "$wanted" >.venv/$stamp
}

case "${1:-all}" in
  all | torch)
    if uses_own_python; then
      install_packages "${build_packages[@]}"
      check_python "${PYTHON:-python3}" torch numpy matplotlib pytest tqdm
    else
      install_packages "${build_packages[@]}" python3 python3-venv
      if [[ "${1:-all}" == torch ]]; then make_venv_with_torch; else make_venv; fi
    fi
    ;;
  lint)
    command -v clang-format >/dev/null || install_packages clang-format
    if uses_own_python; then
      check_python "${PYTHON:-python3}" torch ruff mypy pymarkdown
    else
      install_packages python3 python3-venv
      make_venv
      install_lint_tools
    fi
    ;;
  docs)
    command -v doxygen >/dev/null || install_packages doxygen
    uses_own_python || { install_packages python3 python3-venv; make_venv; }
    ;;
  page) command -v chromium >/dev/null || install_packages chromium ;;
  tidy) install_packages clang-tidy libomp-dev ;;
  *) fail "unknown argument \"$1\"; accepted are torch, lint, page, docs and tidy" ;;
esac
