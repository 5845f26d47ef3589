// Tells to which place in the module hierarchy a node belongs.
#pragma once

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Gives `to` the layer and the module of `from`, those of them that it has (symbols::kLayer and
// kModulePath). For nodes that a pass puts in the place of others, or beside them.
void copy_place(const torch::jit::Node* from, torch::jit::Node* to);

}  // namespace aten_recompute
