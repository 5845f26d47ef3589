# aten_recompute_find_torch([PYTHON <interpreter>...])
#
# Finds LibTorch. Sets ATEN_RECOMPUTE_TORCH_LIBRARIES to the libraries that a target links, and
# ATEN_RECOMPUTE_TORCH_ROOT to the folder that contains lib/ and include/. It looks in this order:
#   1. Torch_DIR or CMAKE_PREFIX_PATH, if the user gives them;
#   2. the torch package of the first interpreter in the list that has one.
# Stops with an error if LibTorch is in neither place.
#
# The CMake package of a CUDA build of LibTorch requires the CUDA toolkit, although this project needs neither nvcc nor
# CUDA headers. Without a toolkit, the libraries are imported directly instead.
# The torch package is located but not imported, because importing it takes seconds.

function(aten_recompute_locate_torch_wheel out)
  set(${out} "" PARENT_SCOPE)
  foreach(python IN LISTS ARGN)
    if(NOT python)
      continue()
    endif()
    execute_process(
      COMMAND "${python}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0])"
      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
      RESULT_VARIABLE failed)
    if(NOT failed AND EXISTS "${root}/share/cmake/Torch/TorchConfig.cmake")
      set(${out} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Sets `out` to the version of the LibTorch in this folder, such as 2.13.0.
function(aten_recompute_torch_version root out)
  set(PACKAGE_FIND_VERSION "0")
  include("${root}/share/cmake/Torch/TorchConfigVersion.cmake")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+\\.[0-9]+" version "${PACKAGE_VERSION}")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

function(aten_recompute_import_torch_libraries root)
  set(libraries "")
  foreach(name IN ITEMS torch torch_cpu c10 torch_cuda c10_cuda)
    set(file "${root}/lib/lib${name}.so")
    if(NOT EXISTS "${file}")
      continue()
    endif()
    set(target aten_recompute_import_${name})
    if(NOT TARGET ${target})
      add_library(${target} SHARED IMPORTED GLOBAL)
      set_target_properties(${target} PROPERTIES
        IMPORTED_LOCATION "${file}"
        INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
        # The CUDA libraries find their own dependencies through their run path, which the linker does not follow.
        INTERFACE_LINK_OPTIONS LINKER:--allow-shlib-undefined)
    endif()
    list(APPEND libraries ${target})
  endforeach()
  set(ATEN_RECOMPUTE_TORCH_LIBRARIES "${libraries}" PARENT_SCOPE)
endfunction()

macro(aten_recompute_find_torch)
  cmake_parse_arguments(_ar "" "" "PYTHON" ${ARGN})
  # find_package() caches Torch_DIR. A folder that was found through Python is looked up again, because the interpreter
  # may have changed; a folder that the user gave is kept.
  if(Torch_DIR AND "${Torch_DIR}" STREQUAL "${ATEN_RECOMPUTE_TORCH_DIR_OF_PYTHON}")
    unset(Torch_DIR CACHE)
  endif()
  # TorchConfig.cmake is three folders below the root of LibTorch.
  find_path(_ar_torch_config TorchConfig.cmake
    HINTS "${Torch_DIR}" ENV Torch_DIR ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH
    PATH_SUFFIXES share/cmake/Torch Torch
    NO_DEFAULT_PATH NO_CACHE)
  if(_ar_torch_config)
    get_filename_component(_ar_root "${_ar_torch_config}/../../.." ABSOLUTE)
    set(_ar_of_python "")
  else()
    aten_recompute_locate_torch_wheel(_ar_root ${_ar_PYTHON})
    if(NOT _ar_root)
      message(FATAL_ERROR
        "LibTorch was not found. Pass -DTorch_DIR=<folder of TorchConfig.cmake>, or "
        "-DPython_EXECUTABLE=<an interpreter with torch>. In the repository, `make setup` installs it.")
    endif()
    set(_ar_torch_config "${_ar_root}/share/cmake/Torch")
    set(_ar_of_python "${_ar_torch_config}")
  endif()
  set(ATEN_RECOMPUTE_TORCH_DIR_OF_PYTHON "${_ar_of_python}" CACHE INTERNAL "LibTorch found through Python")

  set(ATEN_RECOMPUTE_TORCH_ROOT "${_ar_root}")
  set(_ar_nvcc "")
  if(EXISTS "${_ar_root}/lib/libtorch_cuda.so")
    find_program(_ar_nvcc nvcc HINTS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin NO_CACHE)
  endif()
  if(EXISTS "${_ar_root}/lib/libtorch_cuda.so" AND NOT _ar_nvcc)
    message(STATUS "LibTorch: ${_ar_root} (with CUDA; no CUDA toolkit here, none is needed)")
    aten_recompute_import_torch_libraries("${_ar_root}")
  else()
    set(Torch_DIR "${_ar_torch_config}" CACHE PATH "Folder of TorchConfig.cmake" FORCE)
    # TorchConfig.cmake warns about an optional library (kineto) that no wheel contains.
    set(_ar_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
    set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
    find_package(Torch REQUIRED)
    set(CMAKE_MESSAGE_LOG_LEVEL "${_ar_log_level}")
    # These are folders of the machine that built LibTorch; they would become part of the run paths.
    if(TARGET caffe2::mkl)
      set_property(TARGET caffe2::mkl PROPERTY INTERFACE_LINK_DIRECTORIES "")
    endif()
    message(STATUS "LibTorch: ${_ar_root} (${Torch_VERSION})")
    set(ATEN_RECOMPUTE_TORCH_LIBRARIES "${TORCH_LIBRARIES}")
  endif()
endmacro()
