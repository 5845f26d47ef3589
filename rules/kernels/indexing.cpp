// Gradients of indexing that ATen does not have as operators, or that are written in place.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;

void index_backward(Stack& stack) {
  c10::List<std::optional<at::Tensor>> indices;
  const auto list = pop(stack);
  for (const c10::IValue& index : list.toListRef()) {
    indices.push_back(index.isNone() ? std::nullopt : std::make_optional(index.toTensor()));
  }
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  auto result = at::zeros(size, gradient.options());
  at::_index_put_impl_(result, indices, gradient, /*accumulate=*/true, /*unsafe=*/true);
  stack.emplace_back(std::move(result));
}

void gather_backward(Stack& stack) {
  const auto index = pop(stack).toTensor();
  const auto dim = pop(stack).toInt();
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  stack.emplace_back(at::zeros(size, gradient.options()).scatter_add_(dim, index, gradient));
}

// take_along_dim gathers from its broadcast input with broadcast indices or, without a dimension,
// from the flattened input.
void take_along_dim_backward(Stack& stack) {
  const auto dim = pop(stack).toOptional<int64_t>();
  const auto indices = pop(stack).toTensor();
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  if (!dim.has_value()) {
    auto flat = at::zeros({c10::multiply_integers(size)}, gradient.options());
    flat.scatter_add_(0, indices.reshape(-1), gradient.reshape(-1));
    stack.emplace_back(flat.view(size));
    return;
  }
  const auto axis = static_cast<size_t>(*dim < 0 ? *dim + gradient.dim() : *dim);
  auto shape = gradient.sizes().vec();
  shape[axis] = size[axis];
  auto result = at::zeros(shape, gradient.options());
  const auto counted_from_zero = indices.remainder(size[axis]);
  result.scatter_add_(*dim, counted_from_zero.expand(gradient.sizes()), gradient);
  stack.emplace_back(at::sum_to(std::move(result), size));
}

// Computes the gradient of the source of index_add and index_copy.
void index_source_gradient(Stack& stack) {
  const auto alpha = pop(stack).toScalar();
  const auto index = pop(stack).toTensor();
  const auto dim = pop(stack).toInt();
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  auto result = gradient.index_select(dim, size.empty() ? index.squeeze(0) : index);
  if (!size.empty() && result.sizes() != size)
    result = result.expand(size);
  if (!alpha.equal(1))
    result = result * alpha;
  stack.emplace_back(std::move(result));
}

void masked_select_backward(Stack& stack) {
  const auto mask = pop(stack).toTensor();
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  auto result = at::zeros(at::infer_size(size, mask.sizes()), gradient.options());
  result.masked_scatter_(mask, gradient);
  stack.emplace_back(at::sum_to(std::move(result), size));
}

}  // namespace

void register_indexing_operators() {
  using torch::jit::Operator;
  const auto pure = c10::AliasAnalysisKind::PURE_FUNCTION;
  static const torch::jit::RegisterOperators registered({
      Operator("aten_recompute::index_backward(Tensor grad, int[] size, Tensor?[] indices) "
               "-> Tensor",
               index_backward, pure),
      Operator("aten_recompute::index_backward.list(Tensor grad, int[] size, Tensor[] indices) "
               "-> Tensor",
               index_backward, pure),
      Operator("aten_recompute::gather_backward(Tensor grad, int[] size, int dim, Tensor index) "
               "-> Tensor",
               gather_backward, pure),
      Operator("aten_recompute::take_along_dim_backward(Tensor grad, int[] size, Tensor indices, "
               "int? dim) -> Tensor",
               take_along_dim_backward, pure),
      Operator("aten_recompute::index_source_gradient(Tensor grad, int[] size, int dim, "
               "Tensor index, Scalar alpha) -> Tensor",
               index_source_gradient, pure),
      Operator("aten_recompute::masked_select_backward(Tensor grad, int[] size, Tensor mask) "
               "-> Tensor",
               masked_select_backward, pure),
  });
}

}  // namespace aten_recompute
