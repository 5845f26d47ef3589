// Hooks of a parameter that a region's backward reaches without a gradient for it.
#pragma once

namespace torch::autograd {
struct Node;
}

namespace aten_recompute {

class StageNode;

// In eager a parameter that only unread outputs depend on is not reached by a backward, and its
// hooks are not called. The edges of a region lead to all tensors that the region reads, and the
// engine runs what lies behind them, and calls hooks with None where there is no gradient. From
// here on hooks are not called with None in a backward in which only regions lead to their tensor,
// or operators that only regions lead to; what others hand on reaches the hooks as before.
//
// Hooks that C++ registered after the accumulation (DistributedDataParallel waits for its own) are
// called as before. `stage` has no gradient for `target`, where one of its edges leads to.
void keep_missing_gradient_from_hooks(const StageNode& stage, torch::autograd::Node& target);

}  // namespace aten_recompute
