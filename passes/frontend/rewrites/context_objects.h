// Objects that a method makes for its `with` blocks.
#pragma once

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Removes the prim::CreateObject, and the prim::SetAttr that set its attributes, where nothing else
// uses the object.
void remove_if_only_set(torch::jit::Node* object);

}  // namespace aten_recompute
