#include "passes/autodiff/hoist_metadata.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Moves the node to right after the last node that makes a value of `reads`. At the end of the
// forward it would keep a tensor alive for its size.
void move_into_forward(Node* node, const std::vector<Value*>& reads) {
  Node* last = node->owningGraph()->param_node();
  for (auto* value : reads) {
    auto* maker = value->node();
    if (maker->owningBlock() != node->owningBlock() || maker == node)
      continue;  // made inside of the node
    if (maker->kind() != c10::prim::Param &&
        (last->kind() == c10::prim::Param || last->isBefore(maker))) {
      last = maker;
    }
  }
  if (last->kind() == c10::prim::Param) {
    node->moveBefore(node->owningGraph()->block()->nodes().front());
  } else {
    node->moveAfter(last);
  }
}

}  // namespace

void hoist_metadata(JointGraph& joint) {
  std::unordered_set<Value*> backward_values;
  for (size_t i = joint.num_inputs; i < joint.graph->inputs().size(); ++i) {
    backward_values.insert(joint.graph->inputs()[i]);
  }
  for (auto* node : joint.backward_nodes()) {
    bool tensor_output = false;
    for (auto* output : node->outputs()) {
      tensor_output = tensor_output || contains_tensor(*output->type());
    }
    const auto reads = free_values(node);
    const bool forward_only = std::none_of(reads.begin(), reads.end(), [&](Value* value) {
      return backward_values.count(value) != 0;
    });
    if (!tensor_output && forward_only) {
      move_into_forward(node, reads);
    } else {
      backward_values.insert(node->outputs().begin(), node->outputs().end());
    }
  }
}

}  // namespace aten_recompute
