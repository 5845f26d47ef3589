// Recognizes blocks of control flow that check something, and do nothing else.
#pragma once

namespace torch::jit {
struct Block;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Returns whether the node's purpose is to raise an error, if something does not hold, or to warn.
bool raises_or_warns(const torch::jit::Node* node);

// Returns whether the block computes no tensors and has no effect but to raise or warn. It then
// neither reads nor sets attributes, calls nothing that is not inlined, and does not depend on the
// state of autograd. Nested blocks count, too.
bool only_raises_or_warns(torch::jit::Block* block);

}  // namespace aten_recompute
