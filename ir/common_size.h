// Operators whose parts read two operands, expanded to a common size. ATen leaves the expansion of
// an operand out that has this size already, so that the parts read the operand itself.
#pragma once

#include <ATen/core/symbol.h>

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// On such an operator: both operands have the common size (passes/region/noop_elimination.h).
inline const c10::Symbol kHasCommonSize = c10::Symbol::attr("has_common_size");

// Returns whether the node is such an operator. The operands are its first two arguments.
bool expands_to_common_size(const torch::jit::Node* node);

}  // namespace aten_recompute
