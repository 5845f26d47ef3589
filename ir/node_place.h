// Tells to which place in the module hierarchy a node belongs.
#pragma once

#include <string>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Gives `to` the layer and the module of `from`, those of them that it has (symbols::kLayer and
// kModulePath). For nodes that a pass puts in the place of others, or beside them.
void copy_place(const torch::jit::Node* from, torch::jit::Node* to);

// Returns the path of the module that the node belongs to, from the root: "layer3.0"; "" for the
// root itself, and where it is not known.
std::string module_path_of(const torch::jit::Node* node);

}  // namespace aten_recompute
