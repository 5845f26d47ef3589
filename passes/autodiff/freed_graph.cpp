#include "passes/autodiff/freed_graph.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Returns whether the node reads sizes or the like of a tensor, but none of its elements.
bool asks_for_metadata(const Node* node) {
  const auto outputs = node->outputs();
  return reads_metadata_only(node, 0) ||
         (has_fact(node, Fact::kKnownFromMetadata) &&
          std::none_of(outputs.begin(), outputs.end(),
                       [](const auto* output) { return contains_tensor(*output->type()); }));
}

// Values of a graph that depend on its inputs, on freed nodes, and on freed nodes behind inputs.
struct FreedReach {
  ReachedValues from_inputs, freed, freed_behind_inputs;
};

FreedReach follow_freed(const Graph& graph, const ReachedValues& inputs);

bool reaches_result(const Graph& graph, const ReachedValues& reached) {
  const auto results = graph.outputs();
  return std::any_of(results.begin(), results.end(),
                     [&](const Value* result) { return reached.count(result) != 0; });
}

// Returns whether a gradient through the node passes a freed node. The gradient of a stretch that
// runs in slices computes inner values again, whose nodes are freed in its own graph.
bool is_freed(const Node* node) {
  if (node->hasAttribute(symbols::kFreed))
    return true;
  if (node->kind() != symbols::kSliced)
    return false;
  const auto& stretch = *node->g(c10::attr::Subgraph);
  return reaches_result(stretch, follow_freed(stretch, {}).freed);
}

// Returns whether a gradient through the node passes a freed node on its way to one of `reached`.
bool is_freed_behind(const Node* node, const ReachedValues& reached) {
  const auto operands = node->inputs();
  if (std::none_of(operands.begin(), operands.end(),
                   [&](const Value* each) { return reached.count(each) != 0; }))
    return false;
  if (node->hasAttribute(symbols::kFreed) || node->kind() != symbols::kSliced)
    return node->hasAttribute(symbols::kFreed);
  const auto& stretch = *node->g(c10::attr::Subgraph);
  ReachedValues inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (reached.count(operands[i]) != 0)
      inputs.insert(stretch.inputs()[i]);
  }
  return reaches_result(stretch, follow_freed(stretch, inputs).freed_behind_inputs);
}

FreedReach follow_freed(const Graph& graph, const ReachedValues& inputs) {
  FreedReach reach;
  reach.from_inputs = reach_forward(graph, inputs);
  reach.freed = reach_forward(graph, {}, is_freed);
  reach.freed_behind_inputs = reach_forward(
      graph, {}, [&](const Node* node) { return is_freed_behind(node, reach.from_inputs); });
  return reach;
}

}  // namespace

void FreedGraph::add_gradients(const Node* first, const Node* end) {
  for (const auto* node = first; node != end; node = node->next())
    gradients_.insert(node->outputs().begin(), node->outputs().end());
}

void FreedGraph::mark(const std::vector<Node*>& nodes, const Node* first, const Node* end) const {
  std::unordered_set<const Value*> inner;
  bool reads_forward = false;
  for (const auto* node = first; node != end && !reads_forward; node = node->next()) {
    const auto inputs = node->inputs();
    reads_forward = std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) {
      return contains_tensor(*input->type()) && inner.count(input) == 0 &&
             gradients_.count(input) == 0 && input->node()->kind() != c10::prim::Constant &&
             !asks_for_metadata(node);
    });
    inner.insert(node->outputs().begin(), node->outputs().end());
  }
  if (!reads_forward)
    return;
  for (auto* node : nodes)
    node->i_(symbols::kFreed, 1);
}

FreedOutputs find_freed_outputs(const Graph& graph, const std::vector<bool>& requires_grad) {
  ReachedValues inputs;
  for (size_t i = 0; i < requires_grad.size(); ++i) {
    if (requires_grad[i])
      inputs.insert(graph.inputs()[i]);
  }
  const auto reach = follow_freed(graph, inputs);
  FreedOutputs outputs;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto* output = graph.outputs()[i];
    const bool is_behind_leaves = reach.from_inputs.count(output) == 0;
    const auto& relevant = is_behind_leaves ? reach.freed : reach.freed_behind_inputs;
    if (relevant.count(output) == 0)
      continue;
    outputs.all.push_back(i);
    if (is_behind_leaves)
      outputs.behind_leaves.push_back(i);
  }
  return outputs;
}

}  // namespace aten_recompute
