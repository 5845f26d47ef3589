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

// Returns whether the node asks for sizes, types and the like alone, which eager keeps beside a
// graph that it frees. A layout stands for a tensor that eager saves, though its kernel reads no
// element of it.
bool asks_for_metadata(const Node* node) {
  if (reads_metadata_only(node, 0))
    return true;
  const auto outputs = node->outputs();
  return node->kind() != symbols::kLayout &&
         (has_fact(node, Fact::kKnownFromMetadata) || has_fact(node, Fact::kKnownFromRealTensor)) &&
         std::none_of(outputs.begin(), outputs.end(),
                      [](const Value* output) { return contains_tensor(*output->type()); });
}

ReachedValues reach_from_freed_behind(const Graph& graph, const ReachedValues& inputs,
                                      const Node* end = nullptr);

bool reaches_result(const Graph& graph, const ReachedValues& reached) {
  const auto results = graph.outputs();
  return std::any_of(results.begin(), results.end(),
                     [&](const Value* result) { return reached.count(result) != 0; });
}

// Returns whether nodes inside of the node may be freed: the gradient of a stretch that runs in
// slices computes inner values again, in its own graph.
bool may_be_freed_inside(const Node* node) {
  return node->kind() == symbols::kSliced && !node->hasAttribute(symbols::kWithoutGraph);
}

// Returns whether a gradient through the node passes a freed node on its way to one of `reached`.
bool is_freed_behind(const Node* node, const ReachedValues& reached) {
  const auto operands = node->inputs();
  const auto is_reached = [&](const Value* operand) { return reached.count(operand) != 0; };
  if (std::none_of(operands.begin(), operands.end(), is_reached))
    return false;
  if (node->hasAttribute(symbols::kFreed) || !may_be_freed_inside(node))
    return node->hasAttribute(symbols::kFreed);
  const auto& stretch = *node->g(c10::attr::Subgraph);
  return reaches_result(stretch,
                        reach_from_freed_behind(stretch, reached_inputs(node, is_reached)));
}

// Returns the leaves that the graph makes of what requires no gradient. The gradients of those that
// the method returns go to an input (runtime/returned_leaf.h).
ReachedValues own_leaves(const Graph& graph, const std::vector<bool>& requires_grad) {
  const auto with_gradient = values_that_require_grad(graph, requires_grad);
  ReachedValues leaves;
  for (const auto* node : graph.nodes()) {
    if (node->kind() == symbols::kRequireGrad && node->inputs().size() == 1 &&
        with_gradient.count(node->input()) == 0)
      leaves.insert(node->output());
  }
  return leaves;
}

// Returns the values that depend on freed nodes which depend on one of `inputs`.
ReachedValues reach_from_freed_behind(const Graph& graph, const ReachedValues& inputs,
                                      const Node* end) {
  const auto from_inputs = reach_forward(graph, inputs, nullptr, nullptr, end);
  return reach_forward(
      graph, {}, [&](const Node* node) { return is_freed_behind(node, from_inputs); }, nullptr,
      end);
}

}  // namespace

void FreedGraph::add_gradients(const Node* first, const Node* end) {
  for (const auto* node = first; node != end; node = node->next())
    gradients_.insert(node->outputs().begin(), node->outputs().end());
}

void FreedGraph::mark(const std::vector<Node*>& nodes, const Node* first, const Node* end) const {
  std::unordered_set<const Value*> inner;
  const auto is_of_forward = [&](const Value* value) {
    return contains_tensor(*value->type()) && inner.count(value) == 0 &&
           gradients_.count(value) == 0 && value->node()->kind() != c10::prim::Constant;
  };
  bool reads_forward = false;
  for (const auto* node = first; node != end; node = node->next()) {
    const auto inputs = node->inputs();
    const bool reads = std::any_of(inputs.begin(), inputs.end(), is_of_forward);
    if (reads && node->kind() == c10::prim::ListConstruct)
      continue;  // what reads the list reads the tensors
    reads_forward = reads_forward || (reads && !asks_for_metadata(node));
    inner.insert(node->outputs().begin(), node->outputs().end());
  }
  const bool is_of_write = std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->hasAttribute(symbols::kOfWrite);
  });
  if (!reads_forward && !is_of_write)
    return;
  for (auto* node : nodes)
    node->i_(symbols::kFreed, 1);
}

std::vector<FreedOutput> find_freed_outputs(const Graph& graph,
                                            const std::vector<bool>& requires_grad) {
  ReachedValues inputs;
  for (size_t i = 0; i < requires_grad.size(); ++i) {
    if (requires_grad[i])
      inputs.insert(graph.inputs()[i]);
  }
  const auto freed_behind_inputs = reach_from_freed_behind(graph, inputs);
  const auto freed_behind_leaves = reach_from_freed_behind(graph, own_leaves(graph, requires_grad));
  std::vector<FreedOutput> outputs;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto* output = graph.outputs()[i];
    const bool leads_to_own_leaf = freed_behind_leaves.count(output) != 0;
    if (leads_to_own_leaf || freed_behind_inputs.count(output) != 0)
      outputs.push_back({.output = i, .leads_to_own_leaf = leads_to_own_leaf});
  }
  for (size_t i = 0; !outputs.empty() && i < requires_grad.size(); ++i) {
    if (!requires_grad[i])
      continue;
    const auto from_input = reach_forward(graph, {graph.inputs()[i]});
    const auto freed_behind_input = reach_from_freed_behind(graph, {graph.inputs()[i]});
    for (auto& each : outputs) {
      const auto* output = graph.outputs()[each.output];
      if (freed_behind_input.count(output) != 0)
        each.inputs.push_back(i);
      else if (from_input.count(output) != 0)
        each.depends_on_others = true;
    }
  }
  return outputs;
}

bool passes_freed_node(const Graph& graph, const std::vector<Value*>& targets,
                       c10::ArrayRef<Value*> outputs, const Node* end) {
  const auto reached =
      reach_from_freed_behind(graph, ReachedValues(targets.begin(), targets.end()), end);
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](const Value* output) { return reached.count(output) != 0; });
}

}  // namespace aten_recompute
