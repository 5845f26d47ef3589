// Method specs as PyTorch hands them over.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace aten_recompute {

// A spec is "", a JSON string, or a dict of strings and numbers; the result is JSON text (or "").
// Throws std::invalid_argument for anything else.
std::string spec_to_json(const c10::IValue& spec);

}  // namespace aten_recompute
