// The methods of a module that this library runs.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <vector>

#include "backend/lowered_method.h"

namespace aten_recompute {

// Returns the lowered methods of the module. Throws std::invalid_argument for a module that is not
// lowered; `who`, the name of the function that was called, begins the message.
std::vector<c10::intrusive_ptr<LoweredMethod>> methods_of(const torch::jit::Module& lowered,
                                                          const char* who);

}  // namespace aten_recompute
