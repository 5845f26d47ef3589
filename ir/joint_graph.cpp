#include "ir/joint_graph.h"

#include <torch/csrc/jit/ir/ir.h>

namespace aten_recompute {
namespace {

using torch::jit::Node;

std::vector<Node*> nodes_between(Node* first, const Node* end) {
  std::vector<Node*> nodes;
  for (auto* node = first; node != end; node = node->next())
    nodes.push_back(node);
  return nodes;
}

}  // namespace

std::vector<Node*> JointGraph::forward_nodes() const {
  return nodes_between(*graph->nodes().begin(), backward_start);
}

std::vector<Node*> JointGraph::backward_nodes() const {
  return nodes_between(backward_start->next(), graph->return_node());
}

}  // namespace aten_recompute
