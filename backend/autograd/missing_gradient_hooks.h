// Keeps the hooks of a parameter from being called where a region has no gradient for it.
#pragma once

namespace torch::autograd {
struct Node;
}

namespace aten_recompute {

class RegionNode;

// To be called in a backward where `stage` has no gradient for `target`, the end of one of its
// edges. Wraps the hooks of `target` and of the nodes that it leads to.
//
// In eager PyTorch a backward does not reach a parameter that only unread outputs depend on, so its
// hooks are not called. The edges of a region lead to all tensors that the region reads; the engine
// follows them, and calls hooks with None where there is no gradient. A wrapped hook is not called
// with None in a backward that reaches its tensor only through regions, or through operators that
// only regions lead to. What other nodes pass on reaches the hooks as before.
//
// Hooks that C++ code registered to run after the accumulation are called as before, because
// DistributedDataParallel waits for its own.
void keep_missing_gradient_from_hooks(const RegionNode& stage, torch::autograd::Node& target);

}  // namespace aten_recompute
