#include "passes/frontend/rewrites/size_checks.h"

#include <ATen/core/function.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string>

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

namespace {

// Returns the operator that computes the condition of the check; nullptr for other functions.
const char* condition_operator(const torch::jit::Function& function) {
  // In loaded modules the functions have mangled names.
  if (function.qualname().qualifiedName().rfind("__torch__.torch.nn.functional.", 0) != 0)
    return nullptr;
  if (function.name() == "_verify_batch_size")
    return "aten_recompute::has_one_value_per_channel";
  if (function.name() == "_verify_spatial_size")
    return "aten_recompute::has_one_position";
  return nullptr;
}

bool is_dead(const Node* node) {
  return std::none_of(node->outputs().begin(), node->outputs().end(),
                      [](const Value* value) { return value->hasUses(); });
}

}  // namespace

void shorten_size_check(const torch::jit::Function& function, Value* size, Node* before,
                        Node* after) {
  const auto* condition = condition_operator(function);
  if (condition == nullptr)
    return;
  auto* check = before->next();
  while (check != after && check->kind() != c10::prim::If)
    check = check->next();
  // Other versions of PyTorch may write the check differently.
  if (check == after || !check->outputs().empty())
    return;
  auto* graph = check->owningGraph();
  const torch::jit::WithInsertPoint guard(check);
  check->replaceInput(0, graph->insert(c10::Symbol::fromQualString(condition), {size}));
  for (auto* node = check->prev(); node != before;) {
    auto* earlier = node->prev();
    if (is_dead(node))
      node->destroy();
    node = earlier;
  }
}

}  // namespace aten_recompute
