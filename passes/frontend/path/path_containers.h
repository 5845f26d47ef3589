// What a method's list, dict and tuple operators do to containers of a recorded path.
#pragma once

#include <vector>

#include "passes/frontend/path/path_builder.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Runs a node whose first operand is a container, and sets `results`. The graph gets no operator
// for it, except for reads of elements that are still pending. Returns false if the node is no such
// operator. Throws NotRecordable where the node raises.
bool run_on_container(torch::jit::Node* node, std::vector<Item>& operands,
                      std::vector<Item>& results, PathBuilder& builder);

}  // namespace aten_recompute
