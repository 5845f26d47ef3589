// The arguments of a method, as they are typed.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "command/model_file.h"

namespace aten_recompute::command {

// What help says about inputs.
inline constexpr const char* kInputHelp =
    "one argument of the method; repeat the option for more. float32[8,3,224,224] is a "
    "tensor of random numbers, int64[8,512] of zeros, int64[8,512]:1000 of random integers below "
    "1000; 3, 0.5, true and none are themselves; a file that torch.save wrote gives its tensor, "
    "or the tensors of its list; bundled gives all arguments of the first example that "
    "torch.utils.bundled_inputs stored in the module, bundled:1 those of the second";

// Returns the arguments of the method that the texts stand for. With Tensors::kDescribed, tensors
// that are given by their sizes take no memory. Throws Failure(kBadArguments), also where the
// method does not take these arguments, or Failure(kBadFile) for a file.
std::vector<c10::IValue> make_inputs(const torch::jit::Module& module, const std::string& method,
                                     const std::vector<std::string>& texts, Tensors tensors);

}  // namespace aten_recompute::command
