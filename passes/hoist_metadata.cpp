#include "passes/hoist_metadata.h"

#include <torch/csrc/jit/ir/ir.h>

#include <unordered_set>

#include "passes/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

bool reads_only(Node* node, const std::unordered_set<Value*>& backward_values) {
  for (auto* input : node->inputs()) {
    if (backward_values.count(input) != 0) return false;
  }
  for (auto* block : node->blocks()) {
    for (auto* inner : block->nodes()) {
      if (!reads_only(inner, backward_values)) return false;
    }
    for (auto* output : block->outputs()) {
      if (backward_values.count(output) != 0) return false;
    }
  }
  return true;
}

}  // namespace

void hoist_metadata(JointGraph& joint) {
  std::unordered_set<Value*> backward_values;
  for (size_t i = joint.num_inputs; i < joint.graph->inputs().size(); ++i) {
    backward_values.insert(joint.graph->inputs()[i]);
  }
  for (auto* node = joint.backward_start->next(); node != joint.graph->return_node();) {
    auto* next = node->next();
    bool tensor_output = false;
    for (auto* output : node->outputs()) {
      tensor_output = tensor_output || contains_tensor(*output->type());
    }
    if (!tensor_output && reads_only(node, backward_values)) {
      node->moveBefore(joint.backward_start);
    } else {
      backward_values.insert(node->outputs().begin(), node->outputs().end());
    }
    node = next;
  }
}

}  // namespace aten_recompute
