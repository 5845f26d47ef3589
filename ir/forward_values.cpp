#include "ir/forward_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

ForwardValues::ForwardValues(const JointGraph& joint) : num_outputs_(joint.num_outputs) {
  for (size_t i = 0; i < joint.num_inputs; ++i)
    inputs_.insert(joint.graph->inputs()[i]);
  for (auto* node : joint.forward_nodes()) {
    auto& values = node->kind() == c10::prim::Constant ? constants_ : computed_;
    values.insert(node->outputs().begin(), node->outputs().end());
  }
}

std::vector<Value*> ForwardValues::read_by(Node* node) const {
  auto values = free_values(node);
  std::erase_if(values, [&](Value* value) {
    return !is_computed(value) && !is_region_input(value) && constants_.count(value) == 0;
  });
  return values;
}

}  // namespace aten_recompute
