# The package that find_package(aten_recompute) finds inside of the Python package. That has a library for each of
# several versions of LibTorch, in lib/torch-<version>; this leads to the one for the LibTorch that is found.
include("${CMAKE_CURRENT_LIST_DIR}/aten_recompute_find_torch.cmake")
get_filename_component(_aten_recompute_package "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

# The torch package beside ours comes after what the user names, and before that of any interpreter.
set(_aten_recompute_prefix_path "${CMAKE_PREFIX_PATH}")
list(APPEND CMAKE_PREFIX_PATH "${_aten_recompute_package}/../torch")
find_program(_aten_recompute_python3 python3 NO_CACHE)
aten_recompute_find_torch(PYTHON "${Python_EXECUTABLE}" "${_aten_recompute_python3}")
set(CMAKE_PREFIX_PATH "${_aten_recompute_prefix_path}")

aten_recompute_torch_version("${ATEN_RECOMPUTE_TORCH_ROOT}" _aten_recompute_torch_version)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _aten_recompute_minor "${_aten_recompute_torch_version}")
set(_aten_recompute_config
  "${_aten_recompute_package}/lib/torch-${_aten_recompute_minor}/cmake/aten_recompute/aten_recomputeConfig.cmake")
if(NOT EXISTS "${_aten_recompute_config}")
  file(GLOB _aten_recompute_built RELATIVE "${_aten_recompute_package}/lib" "${_aten_recompute_package}/lib/torch-*")
  string(REPLACE "torch-" "" _aten_recompute_built "${_aten_recompute_built}")
  string(REPLACE ";" ", " _aten_recompute_built "${_aten_recompute_built}")
  set(aten_recompute_FOUND FALSE)
  set(aten_recompute_NOT_FOUND_MESSAGE
    "${_aten_recompute_package} has a library for LibTorch ${_aten_recompute_built}, but LibTorch ${_aten_recompute_torch_version} was found in ${ATEN_RECOMPUTE_TORCH_ROOT}: install one of those versions, or build aten_recompute from source")
  return()
endif()
set(Torch_DIR "${ATEN_RECOMPUTE_TORCH_ROOT}/share/cmake/Torch")
include("${_aten_recompute_config}")
