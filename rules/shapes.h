// Shape functions: what operators return, computed on meta tensors.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <functional>
#include <string>

namespace aten_recompute {

// Replaces the operands on the stack, which has no tensors but meta tensors, by the results of the
// operator, and returns true. Meta tensors that it makes meanwhile stand for the operator's
// workspace. Returns false and leaves the operands where the operator itself has to run.
using ShapeFunction = std::function<bool(torch::jit::Stack&)>;

// Returns the shape function that this library has for the operator; empty where there is none.
ShapeFunction shape_function_of(const c10::FunctionSchema& schema);

}  // namespace aten_recompute
