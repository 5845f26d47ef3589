#include "ir/save_plan.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/forward_values.h"
#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Value;

std::vector<Value*> captured_values(const JointGraph& joint) {
  const ForwardValues forward(joint);
  std::unordered_set<Value*> captured;
  for (auto* node : joint.backward_nodes()) {
    for (auto* value : forward.read_by(node)) {
      if (forward.is_computed(value) && contains_tensor(*value->type()))
        captured.insert(value);
    }
  }
  std::vector<Value*> ordered;
  for (auto* node : joint.graph->nodes()) {
    for (auto* output : node->outputs()) {
      if (captured.count(output) != 0)
        ordered.push_back(output);
    }
  }
  return ordered;
}

SavePlan save_everything(const JointGraph& joint) {
  const ForwardValues forward(joint);
  SavePlan plan;
  for (auto* value : captured_values(joint)) {
    while (forward.is_computed(value) && is_pure_view(value->node()))
      value = value->node()->input(0);
    if (forward.is_computed(value))
      plan.saved.insert(value->unique());
  }
  return plan;
}

}  // namespace aten_recompute
