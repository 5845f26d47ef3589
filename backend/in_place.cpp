#include "backend/in_place.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_set>

#include "passes/node_traits.h"

namespace aten_recompute {
namespace {

// Elementwise operators whose in-place overload gives the same bits. Those with a scalar do not: in
// bfloat16, mul_ rounds the scalar first and mul does not. In a binary one the second tensor has to
// agree with the first in every respect.
const std::unordered_set<std::string> kHasInPlaceForm = {"aten::relu", "aten::add.Tensor",
                                                         "aten::sub.Tensor", "aten::mul.Tensor"};

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.requires_grad() &&
         !tensor.is_inference() && tensor.is_non_overlapping_and_dense() &&
         at::isFloatingType(tensor.scalar_type());
}

}  // namespace

std::function<void(torch::jit::Stack&)> in_place_form(const torch::jit::Node* node) {
  if (kHasInPlaceForm.count(qualified_operator_name(node)) == 0)
    return nullptr;
  const auto& schema = node->schema();
  const auto handle =
      c10::Dispatcher::singleton().findSchema({schema.name() + "_", schema.overload_name()});
  if (!handle || handle->schema().arguments().size() != schema.arguments().size())
    return nullptr;
  return [op = *handle](torch::jit::Stack& stack) { op.callBoxed(stack); };
}

bool may_overwrite_first_operand(c10::ArrayRef<c10::IValue> operands) {
  if (!operands[0].isTensor())
    return false;
  const auto& first = operands[0].toTensor();
  if (!is_plain(first) || first.use_count() != 1 || !first.has_storage() ||
      first.storage().use_count() != 1)
    return false;
  for (const auto& operand : operands.slice(1)) {
    if (!operand.isTensor())
      continue;
    const auto& other = operand.toTensor();
    if (!is_plain(other) || other.scalar_type() != first.scalar_type() ||
        other.device() != first.device() || other.sizes() != first.sizes() ||
        other.strides() != first.strides())
      return false;
  }
  return true;
}

}  // namespace aten_recompute
