#include "passes/autodiff/broadcast_gradients.h"

#include <algorithm>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

c10::ArrayRef<Value*> broadcast_operands(Node* unpack) {
  return unpack->input()->node()->input()->node()->inputs();
}

}  // namespace

bool is_broadcast(const Node* node) {
  if (node->kind() != c10::aten::broadcast_tensors ||
      node->input()->node()->kind() != prim::ListConstruct) {
    return false;
  }
  const auto& uses = node->output()->uses();
  return std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    return use.user->kind() == prim::ListUnpack;
  });
}

bool unpacks_broadcast(const Node* node) {
  return node->kind() == prim::ListUnpack && is_broadcast(node->input()->node());
}

void require_broadcast_results(Node* unpack, GradientSums& sums) {
  const auto operands = broadcast_operands(unpack);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (sums.requires_grad(operands[i]))
      sums.require_tensor(unpack->output(i));
  }
}

void insert_broadcast_backward(Node* unpack, GradientSums& sums) {
  auto& graph = *unpack->owningGraph();
  const auto operands = broadcast_operands(unpack);
  // Eager expands each operand by itself, and its engine goes back through the last one first. This
  // is the order of the sum where one tensor is broadcast twice.
  for (size_t i = operands.size(); i-- > 0;) {
    auto* gradient = sums.gradient_of(unpack->output(i));
    if (gradient == nullptr)
      continue;
    auto* sizes = graph.insert(c10::aten::size, {operands[i]});
    auto* dtype = graph.insert(prim::dtype, {operands[i]});
    sums.add(operands[i], graph.insert(symbols::kReduceGrad, {gradient, sizes, dtype}));
  }
}

}  // namespace aten_recompute
