#include "passes/strategy/operator_graph.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

namespace prim = c10::prim;

bool collects_tensors(const torch::jit::Node* node) {
  return node->kind() == prim::ListConstruct || node->kind() == prim::TupleConstruct ||
         node->kind() == symbols::kOptionalList;
}

}  // namespace

OperatorGraph::OperatorGraph(const GraphProblem& graph, const OperatorTypes& types)
    : problem_(graph.problem) {
  for (size_t node = 0; node < problem_.num_nodes; ++node) {
    is_collection_.push_back(collects_tensors(graph.nodes[node]));
    fusible_.push_back(types.fusible(graph.nodes[node]));
    concatenates_.push_back(types.concatenates(graph.nodes[node]));
  }
  find_order();
  find_readers();
  find_distances();
}

bool OperatorGraph::takes_part(int32_t node) const {
  return problem_.in_forward(node) && !problem_.outputs[node].empty() && !problem_.optional[node];
}

int64_t OperatorGraph::distance_of_value(int32_t value) const {
  return distance_over(value_readers_[value]);
}

void OperatorGraph::find_order() {
  order_.resize(problem_.num_nodes);
  int32_t next = 0;
  for (size_t node = 0; node < problem_.num_forward; ++node) {
    if (takes_part(static_cast<int32_t>(node)) && !is_collection_[node])
      order_[node] = next++;
  }
}

// Goes from the last node to the first, so that the readers of a list are known before those of its
// elements.
void OperatorGraph::find_readers() {
  value_readers_.resize(problem_.num_values());
  readers_.resize(problem_.num_nodes);
  for (size_t i = problem_.num_nodes; i-- > 0;) {
    const auto node = static_cast<int32_t>(i);
    if (problem_.in_forward(node) && !takes_part(node))
      continue;
    for (auto output : problem_.outputs[node])
      readers_[node].insert(value_readers_[output].begin(), value_readers_[output].end());
    for (auto input : problem_.inputs[node]) {
      auto& readers = value_readers_[input];
      if (is_collection_[node])
        readers.insert(readers_[node].begin(), readers_[node].end());
      else
        readers.insert(node);
    }
  }
}

void OperatorGraph::find_distances() {
  distance_.assign(problem_.num_nodes, 0);
  for (size_t i = problem_.num_forward; i-- > 0;)
    distance_[i] = distance_over(readers_[i]);
}

int64_t OperatorGraph::distance_over(const std::set<int32_t>& readers) const {
  int64_t distance = kUnreachable;
  for (auto reader : readers)
    distance = std::min(distance, distance_[reader] + 1);
  return distance;
}

}  // namespace aten_recompute
