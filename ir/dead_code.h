// Removes nodes whose results nothing reads. Unlike LibTorch's passes, this knows of effects that
// no schema declares (has_effect() in ir/node_traits.h).
#pragma once

namespace torch::jit {
struct Block;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Removes nodes of the block, and of nested blocks, that have no effect and whose results nothing
// reads. From the node `end` on, only what LibTorch takes for an effect is one: the backward of a
// joint graph draws no numbers and updates no statistics of its own.
void remove_dead_code(torch::jit::Block* block, const torch::jit::Node* end = nullptr);

// Adds a reader behind each node with an effect, so that passes of LibTorch, which remove dead code
// by their own idea of it, leave the node alone. The reader does nothing to a value, and never
// runs.
void pin_effects(torch::jit::Block* block, const torch::jit::Node* end = nullptr);

// Removes the readers again.
void unpin_effects(torch::jit::Block* block);

}  // namespace aten_recompute
