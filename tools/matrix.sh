#!/usr/bin/env bash
# Builds and tests against several versions of PyTorch, each in an environment of its own, one after the other.
#
#   tools/matrix.sh [--compile-only] [VERSION...]    versions such as 2.14 or 2.14.1; default: 2.11 to 2.15
#
# --compile-only compiles and links the library, without optimization, and runs nothing. torch alone is installed for
# it, about 0.5 GB; to run a CUDA build of torch, even on the CPU, its CUDA libraries are installed too, about 6 GB.
#
# Environments and build folders stay in build/matrix/, so that a second run is short. At the end stands a table; the
# exit status is 1 if anything in it failed. Logs are build/matrix/<version>/*.log.
#
# MATRIX_TESTS=<paths>  what pytest runs (default: tests/python without documents, tools and command, which use what
#                       make build leaves in build/)
# JOBS=<n>              how many files are compiled at once
set -uo pipefail
cd "$(dirname "$0")/.."

compile_only=
versions=()
for argument in "$@"; do
  case "$argument" in
    --compile-only) compile_only=1 ;;
    [0-9]*.[0-9]*) versions+=("$argument") ;;
    *)
      echo "matrix: unknown argument \"$argument\"; accepted are --compile-only and versions such as 2.14" >&2
      exit 2
      ;;
  esac
done
((${#versions[@]})) || versions=(2.11 2.12 2.13 2.14 2.15)
default_tests=$(printf 'tests/python/%s ' behavior benchmarking instruments lowering planning rules)
read -ra tests <<<"${MATRIX_TESTS:-$default_tests}"
jobs=${JOBS:-$(nproc)}

# The version as pip is asked for it: 2.14 means its latest patch.
requirement() {
  if [[ "$1" == *.*.* ]]; then echo "torch==$1"; else echo "torch==$1.*"; fi
}

# install VERSION FOLDER: an environment with torch, or torch alone.
install() {
  local version=$1 folder=$2
  if [[ -n "$compile_only" ]]; then
    [[ -d $folder/torch-alone/torch ]] ||
      python3 -m pip install --quiet --no-deps --target "$folder/torch-alone" "$(requirement "$version")"
    return
  fi
  [[ -x $folder/venv/bin/python ]] || python3 -m venv "$folder/venv" || return
  # First and by itself, so that no other package chooses the version of torch, and named again, so that none replaces
  # it by another.
  "$folder/venv/bin/python" -m pip install --quiet "$(requirement "$version")" &&
    "$folder/venv/bin/python" -m pip install --quiet "$(requirement "$version")" -r requirements.txt
}

# build VERSION FOLDER: the library; without --compile-only, the C++ tests too.
build() {
  local folder=$2 options targets=(aten_recompute)
  options=(-DATEN_RECOMPUTE_EXAMPLES=OFF -DATEN_RECOMPUTE_COMMAND=OFF)
  if [[ -n "$compile_only" ]]; then
    options+=(-DTorch_DIR="$PWD/$folder/torch-alone/torch/share/cmake/Torch" -DATEN_RECOMPUTE_TESTS=OFF
      -DATEN_RECOMPUTE_BENCHMARKS=OFF
      -DCMAKE_BUILD_TYPE=Debug)
  else
    options+=(-DPython_EXECUTABLE="$PWD/$folder/venv/bin/python" -DCMAKE_BUILD_TYPE=RelWithDebInfo)
    targets+=(aten_recompute_tracking_allocator aten_recompute_tests aten_recompute_planner_tests
      aten_recompute_arena_tests)
  fi
  local build_folder=$folder/build
  [[ -n "$compile_only" ]] && build_folder=$folder/build-only
  cmake -S . -B "$build_folder" -G Ninja "${options[@]}" &&
    cmake --build "$build_folder" -j "$jobs" --target "${targets[@]}"
}

# step NAME FOLDER COMMAND...: runs a command with a log, and sets `outcome` to what the table says of it.
step() {
  local log=$2/$1.log begin=$SECONDS
  if "${@:3}" >"$log" 2>&1; then
    outcome="$(((SECONDS - begin + 59) / 60)) min"
    return 0
  fi
  outcome="FAILED, see $log"
  failed=1
  return 1
}

failed=
rows=()
for version in "${versions[@]}"; do
  folder=build/matrix/$version
  mkdir -p "$folder"
  echo "matrix: torch $version" >&2
  installed=- built=- cpp=- python=-
  step install "$folder" install "$version" "$folder"
  installed=$outcome
  if [[ "$outcome" != FAILED* ]]; then
    step build "$folder" build "$version" "$folder"
    built=$outcome
  fi
  if [[ "$built" == *min && -z "$compile_only" ]]; then
    step ctest "$folder" ctest --test-dir "$folder/build" --output-on-failure
    cpp=$outcome
    step pytest "$folder" env RECOMPUTE_LIBRARY="$PWD/$folder/build/libaten_recompute.so" \
      PYTHONPATH="$PWD/python" OMP_WAIT_POLICY=PASSIVE "$folder/venv/bin/python" -m pytest -q -p no:cacheprovider \
      -n "$jobs" --dist worksteal "${tests[@]}"
    python="$outcome; $(tail -n 1 "$folder/pytest.log")"
  fi
  rows+=("| $version | $installed | $built | $cpp | $python |")
done

echo "| torch | installed | built | C++ tests | Python tests |"
echo "|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
[[ -z "$failed" ]]
