#!/usr/bin/env bash
# Tests and measures on a machine with a GPU, which needs no compiler and no network.
#
#   tools/gpu.sh pack VERSION      builds the library for a version of torch, such as 2.11, on a machine without a GPU
#   tools/gpu.sh check [FOLDER]    on the machine with the GPU: gradients, budgets, operators and models; under 10 minutes
#   tools/gpu.sh measure [FOLDER]  there: peaks and times beside eager and the peers; under 10 minutes
#
# `pack` needs g++ and CMake (tools/setup.sh) and leaves build/gpu/, which has to be copied along with the sources. The
# other two need a Python with the torch that was named, numpy, pytest, pytest-xdist, tqdm, expecttest and matplotlib;
# packages in build/gpu/site, such as those of tests/zoo/requirements.txt, are found. Logs and tables go to FOLDER
# (default: build/gpu/out); each command ends with a summary, and with status 1 if anything failed.
#
# PYTHON=<interpreter>  which runs the tests (default: python3)
# JOBS=<n>              how many processes share the machine in `check` (default: its cores)
set -uo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
jobs=${JOBS:-$(nproc)}
fail() { echo "gpu: $*" >&2; exit 1; }

pack() {
  local version=$1 folder=build/gpu/$1 torch
  torch=$folder/torch-alone
  [[ -d $torch/torch ]] || python3 -m pip install --quiet --no-deps --target "$torch" "torch==$version.*" ||
    fail "pip has no torch $version"
  cmake -S . -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTorch_DIR="$PWD/$torch/torch/share/cmake/Torch" \
    -DATEN_RECOMPUTE_EXAMPLES=OFF -DATEN_RECOMPUTE_COMMAND=OFF -DATEN_RECOMPUTE_TESTS=OFF \
    -DATEN_RECOMPUTE_BENCHMARKS=OFF &&
    cmake --build "$folder/build" --target aten_recompute &&
    strip -o build/gpu/libaten_recompute.so "$folder/build/libaten_recompute.so" &&
    echo "gpu: build/gpu/libaten_recompute.so is for torch $version"
}

prepare() {
  output=${1:-build/gpu/out}
  mkdir -p "$output"
  export RECOMPUTE_LIBRARY=$PWD/build/gpu/libaten_recompute.so CUBLAS_WORKSPACE_CONFIG=:4096:8 OMP_NUM_THREADS=1
  export PYTHONPATH=$PWD/python:$PWD/tests:$PWD/tests/python:$PWD:$PWD/build/gpu/site
  [[ -f $RECOMPUTE_LIBRARY ]] || fail "$RECOMPUTE_LIBRARY is missing; make it with tools/gpu.sh pack VERSION"
  "$python" -c 'import torch; print("gpu:", torch.cuda.get_device_name(), "torch", torch.__version__)' ||
    fail "$python has no torch that sees a GPU"
}

check() {
  prepare "$@"
  local failed=0 names
  names=$("$python" -c 'from zoo.models import MODELS; print(*MODELS)')
  "$python" -m pytest -q -p no:cacheprovider -n "$((jobs / 3 + 1))" tests/gpu >"$output/tests.txt" 2>&1 &
  local tests=$!
  "$python" -W ignore -m conformance --device cuda --jobs "$((jobs / 2 + 1))" --output "$output" \
    >"$output/conformance.txt" 2>&1 &
  local conformance=$!
  # Each process has a folder of its own for its table.
  echo "$names" | tr ' ' '\n' | xargs -P "$((jobs / 4 + 1))" -I{} sh -c \
    '"$0" -W ignore -m zoo --device cuda --output "$1/zoo/{}" {} >"$1/zoo-{}.log" 2>&1; true' "$python" "$output" &
  local zoo=$!
  wait "$tests" || failed=1
  wait "$conformance" || failed=1
  wait "$zoo"
  "$python" -m zoo --join "$output"/zoo/*/zoo.json --output "$output" >"$output/zoo.txt" || failed=1
  tail -n 3 "$output/tests.txt" "$output/conformance.txt"
  tail -n 8 "$output/zoo.txt"
  return "$failed"
}

measure() {
  prepare "$@"
  unset OMP_NUM_THREADS CUBLAS_WORKSPACE_CONFIG
  "$python" -W ignore benchmarks/run.py --device cuda --size large --models gpt,resnet50,unet \
    --only eager,torchscript,checkpoint,selective,compile_1,none,partners,budgets --budgets 0.5,0.3 --repeats 3 \
    --out "$output/benchmarks" 2>"$output/measure.log" |
    tee "$output/measure.txt"
}

case "${1:-}" in
  pack) [[ $# == 2 ]] || fail "pack needs a version of torch, such as 2.11"; pack "$2" ;;
  check | measure) "$@" ;;
  *) fail "the commands are pack VERSION, check [FOLDER] and measure [FOLDER]" ;;
esac
