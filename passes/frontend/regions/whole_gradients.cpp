#include "passes/frontend/regions/whole_gradients.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_set>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Returns whether the value, or a tensor that it is computed from, is one of `values`.
bool depends_on(const Value* value, const std::unordered_set<const Value*>& values,
                std::unordered_set<const Value*>& seen) {
  if (values.count(value) != 0)
    return true;
  if (!contains_tensor(*value->type()) || is_made_leaf(value) || !seen.insert(value).second)
    return false;
  const auto inputs = value->node()->inputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const Value* input) { return depends_on(input, values, seen); });
}

}  // namespace

bool has_whole_gradients(const Node* region) {
  auto& subgraph = *region->g(c10::attr::Subgraph);
  std::unordered_set<const Value*> targets;
  for (const auto* node : subgraph.nodes()) {
    if (node->kind() != symbols::kGradient)
      continue;
    const auto request = GradientRequest::of(*node);
    for (int64_t i = 0; i < request.num_targets; ++i) {
      const auto* target = node->input(request.num_outputs + i);
      if (target->node()->kind() == c10::prim::Param)
        targets.insert(region->input(target->offset()));
    }
  }
  return std::none_of(region->inputs().begin(), region->inputs().end(), [&](const Value* input) {
    std::unordered_set<const Value*> seen;
    if (targets.count(input) != 0)
      seen.insert(input);
    const auto operands = input->node()->inputs();
    return !targets.empty() && contains_tensor(*input->type()) && !is_made_leaf(input) &&
           std::any_of(operands.begin(), operands.end(),
                       [&](const Value* operand) { return depends_on(operand, targets, seen); });
  });
}

}  // namespace aten_recompute
