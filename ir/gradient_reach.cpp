#include "ir/gradient_reach.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

namespace {

bool passes_gradients(const Node* node) {
  return node->blocks().empty() && !is_non_differentiable(node) &&
         !node->hasAttribute(symbols::kWithoutGraph);
}

}  // namespace

ReachedValues reach_forward(const torch::jit::Graph& graph, ReachedValues reached,
                            const std::function<bool(const Node*)>& starts,
                            const std::function<bool(const Value*)>& ends, const Node* end) {
  for (const auto* node : graph.nodes()) {
    if (node == end)
      break;
    const auto inputs = node->inputs();
    const bool is_start = starts != nullptr && starts(node);
    if (!is_start && (!passes_gradients(node) ||
                      std::none_of(inputs.begin(), inputs.end(),
                                   [&](const Value* input) { return reached.count(input) != 0; })))
      continue;
    for (const auto* output : node->outputs()) {
      if (contains_tensor(*output->type()) && (ends == nullptr || !ends(output)))
        reached.insert(output);
    }
  }
  return reached;
}

ReachedValues values_that_require_grad(const torch::jit::Graph& graph,
                                       const std::vector<bool>& requires_grad, const Node* end) {
  ReachedValues inputs;
  for (size_t i = 0; i < requires_grad.size(); ++i) {
    if (requires_grad[i])
      inputs.insert(graph.inputs()[i]);
  }
  const auto makes_leaf = [](const Node* node) { return node->kind() == symbols::kRequireGrad; };
  return reach_forward(graph, std::move(inputs), makes_leaf, nullptr, end);
}

}  // namespace aten_recompute
