#include "passes/frontend/path/graph_of_value.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace aten_recompute {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

std::optional<GraphOfValue> graph_of_value(Value* value,
                                           const std::function<bool(const Value*)>& is_input,
                                           const std::function<bool(const Node*)>& is_left_out) {
  GraphOfValue result{std::make_shared<Graph>(), {}};
  std::vector<Node*> nodes;
  std::vector<Value*> pending{value};
  std::unordered_set<const Value*> seen{value};
  std::unordered_set<const Node*> found;
  std::unordered_map<Value*, Value*> copies;
  while (!pending.empty()) {
    auto* next = pending.back();
    pending.pop_back();
    if (is_input(next)) {
      copies[next] = result.graph->addInput()->copyMetadata(next);
      result.inputs.push_back(next);
      continue;
    }
    auto* maker = next->node();
    if (!found.insert(maker).second)
      continue;
    if (!maker->blocks().empty() || is_left_out(maker))
      return std::nullopt;
    nodes.push_back(maker);
    for (auto* operand : maker->inputs()) {
      if (seen.insert(operand).second)
        pending.push_back(operand);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](Node* a, Node* b) { return a->isBefore(b); });
  for (auto* node : nodes) {
    auto* copy = result.graph->appendNode(
        result.graph->createClone(node, [&](Value* operand) { return copies.at(operand); }));
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      if (!is_input(node->output(i)))
        copies[node->output(i)] = copy->output(i);
    }
  }
  result.graph->registerOutput(copies.at(value));
  return result;
}

}  // namespace aten_recompute
