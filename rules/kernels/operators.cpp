#include "rules/kernels/operators.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/real.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <array>

#include "ir/memory_reuse.h"
#include "rules/kernels/boxing.h"
#include "rules/kernels/short_sums.h"
#include "rules/kernels/stand_in.h"

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;

at::Tensor sum_of(at::Tensor accumulated, at::Tensor other) {
  const std::array layouts{layout_of(accumulated, accumulated.device()),
                           layout_of(other, other.device())};
  const auto may_overwrite = [&](const at::Tensor& tensor, size_t operand) {
    return is_only_reference(tensor) &&
           layouts_allow_overwriting(ReuseCondition::kSumsAgree, layouts, operand);
  };
  if (may_overwrite(accumulated, 0))
    return accumulated.add_(other);
  if (may_overwrite(other, 1))
    return other.add_(accumulated);
  return at::add(accumulated, other);
}

// Undefined gradients are None (passes/partition/undefined_gradients.h).
void accumulate(Stack& stack) {
  auto other = pop(stack);
  auto accumulated = pop(stack);
  if (other.isNone() || accumulated.isNone()) {
    stack.push_back(other.isNone() ? std::move(accumulated) : std::move(other));
    return;
  }
  stack.emplace_back(sum_of(std::move(accumulated).toTensor(), std::move(other).toTensor()));
}

void accumulate_list(Stack& stack) {
  auto other_value = pop(stack);
  auto accumulated_value = pop(stack);
  if (other_value.isNone() || accumulated_value.isNone()) {
    stack.push_back(other_value.isNone() ? std::move(accumulated_value) : std::move(other_value));
    return;
  }
  const auto other = other_value.toList();
  const auto accumulated = accumulated_value.toList();
  c10::List<std::optional<at::Tensor>> sums;
  for (size_t i = 0; i < accumulated.size(); ++i) {
    const auto& a = accumulated.get(i);
    const auto& b = other.get(i);
    if (a.isNone() || b.isNone()) {
      const auto& defined = a.isNone() ? b : a;
      sums.push_back(defined.isNone() ? std::nullopt : std::make_optional(defined.toTensor()));
    } else {
      sums.push_back(sum_of(a.toTensor(), b.toTensor()));
    }
  }
  stack.emplace_back(std::move(sums));
}

void optional_list(Stack& stack) {
  const auto tensors = pop(stack).toList();
  c10::List<std::optional<at::Tensor>> list;
  for (size_t i = 0; i < tensors.size(); ++i)
    list.push_back(tensors.get(i).toTensor());
  stack.emplace_back(std::move(list));
}

void list_gradient(Stack& stack) {
  const auto length = pop(stack).toInt();
  auto index = pop(stack).toInt();
  auto gradient = pop(stack).toTensor();
  if (index < 0)
    index += length;
  c10::List<std::optional<at::Tensor>> list;
  for (int64_t i = 0; i < length; ++i)
    list.push_back(i == index ? std::make_optional(gradient) : std::nullopt);
  stack.emplace_back(std::move(list));
}

void reduce_grad(Stack& stack) {
  const auto dtype = pop(stack).toScalarType();
  const auto size = pop(stack).toIntVector();
  auto gradient = pop(stack).toTensor();
  if (gradient.is_complex() && !at::isComplexType(dtype))
    gradient = at::real(gradient);
  if (gradient.sizes() != at::IntArrayRef(size))
    gradient = aten_recompute::sum_to(std::move(gradient), size);
  if (gradient.scalar_type() != dtype)
    gradient = gradient.to(dtype);
  stack.emplace_back(std::move(gradient));
}

}  // namespace

void register_rule_operators() {
  using torch::jit::Operator;
  const auto pure = c10::AliasAnalysisKind::PURE_FUNCTION;
  static const torch::jit::RegisterOperators registered({
      // This is a marker, which dead code elimination must not remove. It never runs.
      Operator(
          "aten_recompute::backward_start() -> ()", [](Stack& /*stack*/) {},
          c10::AliasAnalysisKind::CONSERVATIVE),
      Operator("aten_recompute::accumulate(Tensor acc, Tensor other) -> Tensor", accumulate, pure),
      Operator("aten_recompute::accumulate_list(Tensor?[] acc, Tensor?[] other) -> Tensor?[]",
               accumulate_list, pure),
      Operator("aten_recompute::accumulate_list.complete(Tensor[] acc, Tensor[] other) -> Tensor[]",
               accumulate_list, pure),
      Operator("aten_recompute::optional_list(Tensor[] list) -> Tensor?[]", optional_list, pure),
      Operator("aten_recompute::list_gradient(Tensor gradient, int index, int length) -> Tensor?[]",
               list_gradient, pure),
      Operator("aten_recompute::reduce_grad(Tensor gradient, int[] size, int dtype) -> Tensor",
               reduce_grad, pure),
      pure_operator("aten_recompute::layout(Tensor self) -> int[]", &layout),
      pure_operator("aten_recompute::stand_in(int[] layout) -> Tensor",
                    static_cast<at::Tensor (*)(std::vector<int64_t>)>(&stand_in)),
  });
  register_elementwise_operators();
  register_matrix_operators();
  register_contraction_operators();
  register_faster_operators();
  register_convolution_operators();
  register_normalization_operators();
  register_batch_norm_operators();
  register_dropout_operators();
  register_loss_operators();
  register_shape_operators();
  register_part_operators();
  register_indexing_operators();
  register_reduction_operators();
  register_pooling_operators();
  register_attention_operators();
  register_recurrent_operators();
  register_spectral_operators();
  register_distance_operators();
  register_bits_operators();
  register_user_rule_operators();
}

}  // namespace aten_recompute
