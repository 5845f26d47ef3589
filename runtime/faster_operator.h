// Operators of ATen that have a faster form among the operators of this project. Results have the
// same bits, sizes, strides and type; what the faster form has no code for, it hands to ATen.
#pragma once

#include <ATen/core/stack.h>

#include <functional>
#include <string>

namespace aten_recompute {

// Returns a function that runs the faster form of the operator "aten::mul.Scalar", which takes the
// same arguments from the stack; nullptr if there is none. While a profiler listens, it runs
// `operation` instead, so that the profile has the names that people know, and under autocast,
// which casts what ATen's operators are given.
std::function<void(torch::jit::Stack&)> faster_operation(
    const std::string& qualified_name, std::function<void(torch::jit::Stack&)> operation);

}  // namespace aten_recompute
