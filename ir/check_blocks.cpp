#include "ir/check_blocks.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Node;
namespace prim = c10::prim;

bool may_be_part_of_check(const Node* node) {
  if (asks_autograd(node) || runs_autograd(node) || mutates_an_argument(node) ||
      node->kind() == prim::SetAttr || node->kind() == prim::GetAttr ||
      node->kind() == prim::CallMethod || node->kind() == prim::CallFunction)
    return false;
  if (node->hasSideEffects() && node->blocks().empty() && !raises_or_warns(node))
    return false;
  const auto outputs = node->outputs();
  return std::none_of(outputs.begin(), outputs.end(),
                      [](const auto* output) { return contains_tensor(*output->type()); });
}

}  // namespace

bool raises_or_warns(const Node* node) {
  return node->kind() == prim::RaiseException || node->kind() == c10::aten::warn ||
         node->kind() == symbols::kCheckPath;
}

bool only_raises_or_warns(Block* block) {
  auto nodes = block->nodes();
  return std::all_of(nodes.begin(), nodes.end(), [](Node* node) {
    const auto blocks = node->blocks();
    return may_be_part_of_check(node) &&
           std::all_of(blocks.begin(), blocks.end(), only_raises_or_warns);
  });
}

}  // namespace aten_recompute
