#include "passes/schedule.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// The node of the graph's own block that `node` stands in.
Node* top_level(Node* node) {
  while (node->owningBlock()->owningNode() != nullptr &&
         node->owningBlock()->owningNode()->kind() != c10::prim::Return &&
         node->owningBlock() != node->owningGraph()->block()) {
    node = node->owningBlock()->owningNode();
  }
  return node;
}

Node* first_use(Node* node) {
  Node* first = nullptr;
  for (auto* output : node->outputs()) {
    for (const auto& use : output->uses()) {
      auto* user = top_level(use.user);
      if (first == nullptr || user->isBefore(first))
        first = user;
    }
  }
  return first;
}

}  // namespace

void schedule(JointGraph& joint) {
  // From the last to the first: a node's users stand where they will stay when its turn comes.
  for (auto* node = joint.graph->return_node()->prev(); node != joint.backward_start;) {
    auto* previous = node->prev();
    if (node->hasAttribute(symbols::kRecomputed)) {
      if (auto* user = first_use(node); user != nullptr && user != node->next()) {
        node->moveBefore(user);
      }
    }
    node = previous;
  }
}

}  // namespace aten_recompute
