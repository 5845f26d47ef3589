// Converts the method specs that PyTorch passes to a backend.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace aten_recompute {

// Returns the spec as JSON text, or "". A spec is None, "", a JSON string, or a dict of strings and
// numbers. Throws std::invalid_argument for anything else.
std::string spec_to_json(const c10::IValue& spec);

}  // namespace aten_recompute
