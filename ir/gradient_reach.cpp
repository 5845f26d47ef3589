#include "ir/gradient_reach.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

bool passes_gradient(const Node* node, size_t operand, size_t output) {
  const bool reads_metadata = reads_metadata_only(node, operand) ||
                              (operand == 1 && has_fact(node, Fact::kReadsMetadataOfSecond));
  const bool is_unused_target = node->hasAttribute(symbols::kNumDependencies) &&
                                static_cast<int64_t>(operand) >= node->i(symbols::kNumDependencies);
  return !is_unused_target && !is_non_differentiable(node) &&
         !node->hasAttribute(symbols::kWithoutGraph) && !reads_metadata &&
         output_is_differentiable(node, output);
}

namespace {

// Returns for each output of the node whether it depends on one of `reached` by operators that a
// gradient passes through.
std::vector<bool> reaches_outputs(const Node* node, const ReachedValues& reached) {
  const auto inputs = node->inputs();
  const auto is_reached = [&](const Value* input) { return reached.count(input) != 0; };
  std::vector<bool> reaches(node->outputs().size(), false);
  if (!node->blocks().empty() || std::none_of(inputs.begin(), inputs.end(), is_reached))
    return reaches;
  if (node->kind() != symbols::kSliced) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t k = 0; is_reached(inputs[i]) && k < reaches.size(); ++k)
        reaches[k] = reaches[k] || passes_gradient(node, i, k);
    }
    return reaches;
  }
  if (node->hasAttribute(symbols::kWithoutGraph))
    return reaches;
  // The graph of a stretch that runs in slices may read sizes alone of an operand.
  const auto& stretch = *node->g(c10::attr::Subgraph);
  const auto inside = reach_forward(stretch, reached_inputs(node, is_reached));
  for (size_t i = 0; i < reaches.size(); ++i)
    reaches[i] = inside.count(stretch.outputs()[i]) != 0;
  return reaches;
}

}  // namespace

ReachedValues reach_forward(const torch::jit::Graph& graph, ReachedValues reached,
                            const std::function<bool(const Node*)>& starts,
                            const std::function<bool(const Value*)>& ends, const Node* end) {
  for (const auto* node : graph.nodes()) {
    if (node == end)
      break;
    auto reaches = reaches_outputs(node, reached);
    if (starts != nullptr && starts(node))
      reaches.assign(reaches.size(), true);
    for (size_t i = 0; i < reaches.size(); ++i) {
      const auto* output = node->output(i);
      if (reaches[i] && contains_tensor(*output->type()) && (ends == nullptr || !ends(output)))
        reached.insert(output);
    }
  }
  return reached;
}

ReachedValues reached_inputs(const Node* node,
                             const std::function<bool(const Value*)>& is_reached) {
  const auto& subgraph = *node->g(c10::attr::Subgraph);
  ReachedValues inputs;
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    if (is_reached(node->input(i)))
      inputs.insert(subgraph.inputs()[i]);
  }
  return inputs;
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
