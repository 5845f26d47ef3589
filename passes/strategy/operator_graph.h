// The operators of a region as strategy `min_cut` sees them: who reads what, and what could be
// fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "passes/strategy/graph_problem.h"
#include "passes/strategy/operator_types.h"

namespace aten_recompute {

// Facts that follow from the graph and the types of its operators alone. Nodes and values are
// indices of the planning problem. A node that only collects tensors in a list or tuple for another
// operator is looked through: that operator counts as the reader of each tensor.
class OperatorGraph {
 public:
  // The distance of what no backward node depends on.
  static constexpr int64_t kUnreachable = std::numeric_limits<int32_t>::max();

  // `graph` must outlive this.
  OperatorGraph(const GraphProblem& graph, const OperatorTypes& types);

  // Whether the node is an operator of the forward that makes tensors and always runs. An optional
  // one does not take part: it serves the choice between a node and its alternative, which
  // `min_cut` does not make.
  bool takes_part(int32_t node) const;

  // Whether the node only collects tensors in a list or tuple.
  bool is_collection(int32_t node) const { return is_collection_[node]; }

  // Position in the forward, among the operators that take part; collections have none.
  int32_t order(int32_t node) const { return order_[node]; }

  // Whether a compiler could compute both operators in one loop.
  bool fuses(int32_t producer, int32_t reader) const {
    return concatenates_[reader] || (fusible_[producer] && fusible_[reader]);
  }

  // The nodes that read a value, and those that read a result of a node.
  const std::set<int32_t>& readers_of_value(int32_t value) const { return value_readers_[value]; }
  const std::set<int32_t>& readers(int32_t node) const { return readers_[node]; }

  // The number of operators between a node's results, or a value, and the nearest backward node
  // that depends on them: 1 where a backward node reads them. 0 for a node of the backward.
  int64_t distance(int32_t node) const { return distance_[node]; }
  int64_t distance_of_value(int32_t value) const;

 private:
  void find_order();
  void find_readers();
  void find_distances();
  int64_t distance_over(const std::set<int32_t>& readers) const;

  const Problem& problem_;
  // Per node.
  std::vector<bool> is_collection_;
  std::vector<bool> fusible_;
  std::vector<bool> concatenates_;
  std::vector<int32_t> order_;
  std::vector<std::set<int32_t>> readers_;
  std::vector<int64_t> distance_;
  // Per value.
  std::vector<std::set<int32_t>> value_readers_;
};

}  // namespace aten_recompute
