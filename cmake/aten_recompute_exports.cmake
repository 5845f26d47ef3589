# aten_recompute_export_only(<target> <C name>... FUNCTIONS <name>... TAGGED <name>... CONSTRUCTORS <class>...)
#
# Makes these names the only ones that a shared library shows: C names as they are, and C++ functions in all their
# overloads. TAGGED are functions that return a std::string, or something made of them, and take none: their symbols have
# the tag [abi:cxx11]. Without this the library would show some five thousand names, most of them instances of other
# projects' templates, which a program with other versions of those projects would be mixed up with.
#
# The compiler's own -fvisibility=hidden cannot do this: LibTorch marks many inline functions as visible.

# Sets `out` to the beginning of the mangled name of a function; passes::run becomes _ZN6passes3run.
function(aten_recompute_mangled name out)
  string(REPLACE "::" ";" parts "${name}")
  set(mangled "_ZN")
  foreach(part IN LISTS parts)
    string(LENGTH "${part}" length)
    string(APPEND mangled "${length}${part}")
  endforeach()
  set(${out} "${mangled}" PARENT_SCOPE)
endfunction()

function(aten_recompute_export_only target)
  cmake_parse_arguments(PARSE_ARGV 1 _ar "" "" "FUNCTIONS;TAGGED;CONSTRUCTORS")
  set(lines "")
  foreach(name IN LISTS _ar_UNPARSED_ARGUMENTS)
    string(APPEND lines "    ${name};\n")
  endforeach()
  # What stands after the name.
  set(suffix_of_FUNCTIONS "E*")
  set(suffix_of_TAGGED "B5cxx11E*")
  set(suffix_of_CONSTRUCTORS "C[12]E*")
  foreach(kind IN ITEMS FUNCTIONS TAGGED CONSTRUCTORS)
    foreach(name IN LISTS _ar_${kind})
      aten_recompute_mangled("${name}" mangled)
      string(APPEND lines "    ${mangled}${suffix_of_${kind}};\n")
    endforeach()
  endforeach()
  set(map "${PROJECT_BINARY_DIR}/${target}_exports.map")
  file(CONFIGURE OUTPUT "${map}" CONTENT "{\n  global:\n${lines}  local:\n    *;\n};\n" @ONLY)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()
