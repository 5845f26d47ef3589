// Follows gradients forward through a straight-line graph, without differentiating it.
#pragma once

#include <functional>
#include <unordered_set>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

using ReachedValues = std::unordered_set<const torch::jit::Value*>;

// Returns whether a gradient of an output passes through the node to one of its operands, as far as
// the operator alone decides it.
bool passes_gradient(const torch::jit::Node* node, size_t operand, size_t output);

// Returns `reached` with all values that depend on one of them by operators that a gradient passes
// through. `starts(node)`: the outputs of the node are reached, whatever it reads; may be empty.
// `ends(value)`: the value is not reached; may be empty. Nodes from `end` on are left out.
ReachedValues reach_forward(const torch::jit::Graph& graph, ReachedValues reached,
                            const std::function<bool(const torch::jit::Node*)>& starts = nullptr,
                            const std::function<bool(const torch::jit::Value*)>& ends = nullptr,
                            const torch::jit::Node* end = nullptr);

// Returns the inputs of the node's subgraph that stand for operands of which `is_reached` holds.
ReachedValues reached_inputs(const torch::jit::Node* node,
                             const std::function<bool(const torch::jit::Value*)>& is_reached);

// Returns the values that have requires_grad in eager PyTorch when `end` runs, or at the end of the
// graph. `requires_grad[i]`: input i has it.
ReachedValues values_that_require_grad(const torch::jit::Graph& graph,
                                       const std::vector<bool>& requires_grad,
                                       const torch::jit::Node* end = nullptr);

}  // namespace aten_recompute
