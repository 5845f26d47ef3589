// Runs an operator on meta tensors, so that sizes are known and nothing is allocated or computed.
#pragma once

#include <ATen/core/stack.h>

#include <exception>
#include <string>

#include "runtime/program.h"

namespace aten_recompute {

// Returns whether the node's operator, or that on its tape, has a shape function that was
// registered, or one of this library (rules/shapes.h).
bool has_shape_function(const torch::jit::Node* node);

// Replaces the operands on the stack, which has no tensors but meta tensors, by the results. A
// shape function runs in place of an operator that has one; its tape is then an empty object.
// Otherwise the operator itself runs; what it makes on a device of its own choice is a meta tensor,
// too. Throws what the operator throws.
void run_on_meta(const Program::Instruction& instruction, const torch::jit::Node* node,
                 torch::jit::Stack& stack);

// Does it for an operator that ATen composes of others, without a shape function of this library,
// so that a WatchForCasts sees these (rules/autocast_probe.h). Returns false, and leaves the stack,
// for any other operator, and where a part does not run on meta tensors.
bool run_parts_on_meta(const Program::Instruction& instruction, const torch::jit::Node* node,
                       torch::jit::Stack& stack);

// Returns one line that says why the node did not run on meta tensors and what would help.
std::string why_not_described(const torch::jit::Node* node, const std::exception& error);

}  // namespace aten_recompute
