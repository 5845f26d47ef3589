// Tells whether an operator's results have the same types in every call that takes a path.
#pragma once

#include <vector>

#include "passes/frontend/path/path_item.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Returns whether rank, dtype and device of the node's results follow from those of its tensors.
// They may also be decided by a number that is not a constant of the path, or by sizes.
bool determines_types(const torch::jit::Node* node, const std::vector<Item>& operands);

}  // namespace aten_recompute
