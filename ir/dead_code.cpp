#include "ir/dead_code.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {

using torch::jit::Block;
using torch::jit::Node;

void pin_effects(Block* block, const Node* end) {
  std::vector<Node*> nodes;
  for (auto* node : block->nodes()) {
    if (node == end)
      break;
    for (auto* inner : node->blocks())
      pin_effects(inner);
    if (!node->outputs().empty() && has_effect(node))
      nodes.push_back(node);
  }
  for (auto* node : nodes) {
    // Alias analysis knows that a print writes to nothing, and that it must stay.
    auto* pin = block->owningGraph()->create(c10::prim::Print, {node->output(0)}, 0);
    pin->i_(symbols::kPin, 1)->insertAfter(node);
  }
}

void unpin_effects(Block* block) {
  std::vector<Node*> pins;
  for_each_node(block, [&](Node* node) {
    if (node->hasAttribute(symbols::kPin))
      pins.push_back(node);
  });
  for (auto* pin : pins)
    pin->destroy();
}

void remove_dead_code(Block* block, const Node* end) {
  pin_effects(block, end);
  torch::jit::EliminateDeadCode(block);
  unpin_effects(block);
}

}  // namespace aten_recompute
