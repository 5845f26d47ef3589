// What a method does outside of its regions.
#pragma once

#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Returns whether some operator outside regions runs under ordinary autograd, which may keep
// tensors for it.
bool keeps_memory_outside(torch::jit::Graph& graph);

// Returns whether autocast may cast a tensor for an operator outside of regions.
bool may_cast_outside(torch::jit::Graph& graph);

// Returns whether a region that will have no plan may share casts with others.
bool may_cast_unplanned(const std::vector<torch::jit::Node*>& regions);

// Returns whether the graph calls a method that is not inlined.
bool calls_methods(torch::jit::Graph& graph);

}  // namespace aten_recompute
