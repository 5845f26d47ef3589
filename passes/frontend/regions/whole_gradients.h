// Tells whether a region holds all that the gradients in it pass through.
#pragma once

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Returns whether the whole graph that each gradient of the region passes through is in it: no
// input of the region is computed from a target that is an input, too.
bool has_whole_gradients(const torch::jit::Node* region);

}  // namespace aten_recompute
