// Python's format for objects, as far as JSON goes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace aten_recompute {

/// Returns the bytes of a pickle of protocol 4 (Python's Lib/pickletools.py describes it) of
/// dictionaries, lists, texts, numbers, booleans and None, without classes and without references,
/// so that readers that know few of the format's operations can read it.
std::string pickle_of(const nlohmann::json& value);

}  // namespace aten_recompute
