// Functions of TorchScript that come from Python.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace aten_recompute {

// An operator can be given modules, but no functions. So a function comes as a module with one
// attribute of the function's type (python/aten_recompute/_targets.py), whose value is None.
// Returns nullptr for any other module.
torch::jit::Function* function_in(const torch::jit::Module& module);

}  // namespace aten_recompute
