#include "passes/frontend/path/determined_types.h"

#include <torch/csrc/jit/ir/ir.h>

#include <string>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"

namespace aten_recompute {

using torch::jit::Node;

namespace {

// Returns whether an argument of an operator may decide more than the sizes of its results.
bool may_decide_type(const c10::Argument& argument) {
  const auto* type = argument.real_type().get();
  if (const auto* optional = type->castRaw<c10::OptionalType>())
    type = optional->getElementType().get();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::ListType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::SymIntType:
      return false;
    case c10::TypeKind::IntType:
      return argument.name().find("dim") != std::string::npos;
    default:
      return true;
  }
}

}  // namespace

bool determines_types(const Node* node, const std::vector<Item>& operands) {
  const bool is_known = node->kind().is_aten() || node->kind().is_prim() || is_marker(node);
  if (!is_known || has_fact(node, Fact::kRankFollowsFromSizes))
    return false;
  const auto& arguments = node->schema().arguments();
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool may_decide =
        i < arguments.size() && may_decide_type(arguments[i]) && !is_fully_constant(operands[i]);
    if (may_decide || !has_determined_type(operands[i]))
      return false;
  }
  return true;
}

}  // namespace aten_recompute
