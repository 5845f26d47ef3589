// The planned methods of a module or a function, however they came to be planned.
#pragma once

#include <ATen/core/function.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "backend/method/lowered_method.h"

namespace aten_recompute {

using PlannedMethods = std::vector<c10::intrusive_ptr<LoweredMethod>>;

// Returns the methods in upstream's part of a lowered module (backend/method/lower.cpp).
PlannedMethods methods_of_backend(const torch::jit::Module& lowered);

// Returns the methods that enable() made planned; none where it has not been called.
PlannedMethods enabled_methods_of(const torch::jit::Module& module);
PlannedMethods enabled_methods_of(torch::jit::Function& function);

// Returns the methods of a module that is lowered or enabled, or the one of an enabled function.
// Throws std::invalid_argument for others; `who` is the function that was called, for the message.
PlannedMethods planned_methods_of(const torch::jit::Module& module, const char* who);
PlannedMethods planned_methods_of(torch::jit::Function& function, const char* who);

}  // namespace aten_recompute
