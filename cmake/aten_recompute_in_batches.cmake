# aten_recompute_in_batches(<target> <source>...)
#
# Has sources of the target compiled together, if ATEN_RECOMPUTE_UNITY says so. A source without a line of code takes
# three seconds, most of them for templates of LibTorch's headers; the sources of a batch take them once. They share a
# namespace without a name, so they are of one folder, where names mean the same (tools/check_names.py). The batches of a
# folder have about the same size, so that none of them is compiled last and alone.
set(ATEN_RECOMPUTE_BATCH 20 CACHE STRING "Most sources of a folder to compile together")
mark_as_advanced(ATEN_RECOMPUTE_BATCH)

function(aten_recompute_in_batches target)
  set(_folders)
  foreach(_source IN LISTS ARGN)
    cmake_path(RELATIVE_PATH _source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    cmake_path(GET _source PARENT_PATH _folder)
    string(MAKE_C_IDENTIFIER "${_folder}" _folder)
    list(APPEND _folders ${_folder})
    list(APPEND _in_${_folder} "${_source}")
  endforeach()
  list(REMOVE_DUPLICATES _folders)
  foreach(_folder IN LISTS _folders)
    list(LENGTH _in_${_folder} _number)
    if(_number EQUAL 1)
      continue()
    endif()
    math(EXPR _batches "(${_number} + ${ATEN_RECOMPUTE_BATCH} - 1) / ${ATEN_RECOMPUTE_BATCH}")
    set(_index 0)
    foreach(_source IN LISTS _in_${_folder})
      math(EXPR _batch "${_index} * ${_batches} / ${_number}")
      set_source_files_properties("${_source}" PROPERTIES UNITY_GROUP "${_folder}_${_batch}")
      math(EXPR _index "${_index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${ATEN_RECOMPUTE_UNITY}" UNITY_BUILD_MODE GROUP)
endfunction()
