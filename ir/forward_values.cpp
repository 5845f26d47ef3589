#include "ir/forward_values.h"

#include <torch/csrc/jit/ir/ir.h>

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

ForwardValues::ForwardValues(const JointGraph& joint) : num_outputs_(joint.num_outputs) {
  for (size_t i = 0; i < joint.num_inputs; ++i)
    inputs_.insert(joint.graph->inputs()[i]);
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start)
      break;
    auto& values = node->kind() == c10::prim::Constant ? constants_ : computed_;
    values.insert(node->outputs().begin(), node->outputs().end());
  }
}

void ForwardValues::collect(Node* node, std::vector<Value*>& values,
                            std::unordered_set<Value*>& seen) const {
  for (auto* input : node->inputs()) {
    if (!is_computed(input) && !is_region_input(input) && constants_.count(input) == 0)
      continue;
    if (seen.insert(input).second)
      values.push_back(input);
  }
  for (auto* block : node->blocks()) {
    for (auto* inner : block->nodes())
      collect(inner, values, seen);
    collect(block->return_node(), values, seen);
  }
}

std::vector<Value*> ForwardValues::read_by(Node* node) const {
  std::vector<Value*> values;
  std::unordered_set<Value*> seen;
  collect(node, values, seen);
  return values;
}

}  // namespace aten_recompute
