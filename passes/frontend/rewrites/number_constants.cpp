#include "passes/frontend/rewrites/number_constants.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
namespace aten = c10::aten;

bool is_arithmetic(const Node* node) {
  switch (node->kind()) {
    case aten::add:
    case aten::sub:
    case aten::mul:
    case aten::div:
      return true;
    default:
      return false;
  }
}

// Returns the number that a constant stands for, if a trace makes such a constant of a number.
std::optional<c10::IValue> number_of(const torch::jit::Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor() || !constant->toTensor().defined())
    return std::nullopt;
  const auto& tensor = constant->toTensor();
  const auto type = tensor.scalar_type();
  const bool is_of_number = type == at::kDouble || type == at::kLong || type == at::kComplexDouble;
  if (tensor.dim() != 0 || !is_of_number)
    return std::nullopt;
  return c10::IValue(tensor.item());
}

}  // namespace

void number_constants(torch::jit::Graph& graph) {
  for_each_node(graph.block(), [&](Node* node) {
    if (!is_arithmetic(node) || !contains_tensor(*node->input(0)->type()))
      return;
    const auto number = number_of(node->input(1));
    if (!number)
      return;
    const torch::jit::WithInsertPoint guard(node);
    node->replaceInput(1, graph.insertConstant(*number));
  });
}

}  // namespace aten_recompute
