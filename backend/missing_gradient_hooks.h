// Hooks of a parameter that a region's backward reaches without a gradient for it.
#pragma once

namespace torch::autograd {
struct Node;
}

namespace aten_recompute {

// In eager a parameter that only unread outputs depend on is not reached by a backward, and its
// hooks are not called. The edges of a region lead to all parameters that the region reads, and the
// engine calls the hooks of each, with None where it has no gradient. From here on those hooks are
// not called in a backward in which nothing but regions leads to the parameter and none of them has
// a gradient for it; what other nodes hand on reaches the hooks as before.
//
// Hooks that C++ registered after the accumulation (DistributedDataParallel waits for its own) are
// called as before. `target`: where an edge leads to; nothing happens where it is no parameter's
// node, or has no hooks.
void keep_missing_gradient_from_hooks(torch::autograd::Node& target);

}  // namespace aten_recompute
