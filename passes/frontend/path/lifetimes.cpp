#include "passes/frontend/path/lifetimes.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

void Lifetimes::add(Block* block) {
  std::unordered_map<Value*, Node*> last;
  for (auto* node : block->nodes()) {
    for (auto* inner : node->blocks())
      add(inner);
    for (auto* value : free_values(node)) {
      if (value->node()->owningBlock() == block)
        last[value] = node;
    }
    for (auto* output : node->outputs())
      last[output] = node;
  }
  for (auto* output : block->outputs())
    last.erase(output);
  for (const auto& [value, node] : last)
    dead_[node].push_back(value);
}

const std::vector<Value*>& Lifetimes::dead_after(Node* node) const {
  static const std::vector<Value*> none;
  const auto found = dead_.find(node);
  return found == dead_.end() ? none : found->second;
}

}  // namespace aten_recompute
