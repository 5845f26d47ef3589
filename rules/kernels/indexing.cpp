// Gradients of indexing that ATen does not have as operators, or that are written in place.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <tuple>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using torch::jit::pop;
using torch::jit::Stack;

void index_backward(Stack& stack) {
  c10::List<std::optional<at::Tensor>> indices;
  const auto list = pop(stack);
  for (const c10::IValue& index : list.toListRef())
    indices.push_back(index.isNone() ? std::nullopt : std::make_optional(index.toTensor()));
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

int64_t wrapped_index(int64_t index, int64_t size) {
  return at::maybe_wrap_dim(index, size);
}

// ---- scatter_reduce (FunctionsManual.cpp, scatter_reduce_backward) ----

// These return the gradients of self and source. That of self still has to be set to 0 where the
// result does not include it.

std::tuple<Tensor, Tensor> scatter_mean_backward(Tensor grad, int64_t dim, Tensor index,
                                                 std::vector<int64_t> source_size,
                                                 bool include_self) {
  auto counts = include_self ? at::ones_like(grad) : at::zeros_like(grad);
  counts.scatter_add_(dim, index, at::ones(source_size, grad.options()));
  counts.masked_fill_(counts == 0, 1);
  return {grad / counts, grad.gather(dim, index) / counts.gather(dim, index)};
}

// Where one factor is 0, the product of the others is computed without it.
std::tuple<Tensor, Tensor> scatter_product_backward(Tensor grad, Tensor self, int64_t dim,
                                                    Tensor index, Tensor source, bool include_self,
                                                    Tensor result) {
  const auto nonzero_self = self.masked_fill(self == 0, 1);
  const auto without_zeros = nonzero_self.scatter_reduce(dim, index, source, "prod", include_self);
  const auto is_zero = source == 0;
  const auto num_zeros = at::zeros_like(self)
                             .scatter_add_(dim, index, is_zero.to(self.scalar_type()))
                             .gather(dim, index);
  const auto is_only_zero = is_zero.bitwise_and(num_zeros == 1);
  const auto without_only_zeros =
      self.scatter_reduce(dim, index, source.masked_fill(is_only_zero, 1), "prod", include_self);
  return {grad * without_zeros / nonzero_self,
          at::where(is_only_zero, (grad * without_only_zeros).gather(dim, index),
                    (grad * result).gather(dim, index) / source.masked_fill(is_zero, 1))};
}

// All elements that equal the result get the same share of the gradient.
std::tuple<Tensor, Tensor> scatter_extremum_backward(Tensor grad, Tensor self, int64_t dim,
                                                     Tensor index, Tensor source, Tensor result) {
  const auto self_equals = (self == result).to(self.scalar_type());
  const auto source_equals = (source == result.gather(dim, index)).to(self.scalar_type());
  const auto share = grad / self_equals.scatter_add(dim, index, source_equals);
  return {self_equals * share, source_equals * share.gather(dim, index)};
}

at::Tensor slice_scatter_in_place(at::Tensor self, const at::Tensor& src, int64_t dim,
                                  std::optional<int64_t> start, std::optional<int64_t> end,
                                  int64_t step) {
  self.slice(dim, start, end, step).copy_(src);
  return self;
}

at::Tensor select_scatter_in_place(at::Tensor self, const at::Tensor& src, int64_t dim,
                                   int64_t index) {
  self.select(dim, index).copy_(src);
  return self;
}

}  // namespace

void register_indexing_operators() {
  using torch::jit::Operator;
  const auto pure = c10::AliasAnalysisKind::PURE_FUNCTION;
  static const torch::jit::RegisterOperators registered({
      Operator("aten_recompute::index_backward(Tensor gradient, int[] size, Tensor?[] indices) "
               "-> Tensor",
               index_backward, pure),
      Operator("aten_recompute::index_backward.list(Tensor gradient, int[] size, Tensor[] indices) "
               "-> Tensor",
               index_backward, pure),
      Operator(
          "aten_recompute::gather_backward(Tensor gradient, int[] size, int dim, Tensor index) "
          "-> Tensor",
          gather_backward, pure),
      Operator(
          "aten_recompute::take_along_dim_backward(Tensor gradient, int[] size, Tensor indices, "
          "int? dim) -> Tensor",
          take_along_dim_backward, pure),
      Operator("aten_recompute::index_source_gradient(Tensor gradient, int[] size, int dim, "
               "Tensor index, Scalar alpha) -> Tensor",
               index_source_gradient, pure),
      Operator("aten_recompute::masked_select_backward(Tensor gradient, int[] size, Tensor mask) "
               "-> Tensor",
               masked_select_backward, pure),
      in_place_operator("aten_recompute::slice_scatter_(Tensor(a!) self, Tensor src, int dim=0, "
                        "int? start=None, int? end=None, int step=1) -> Tensor(a!)",
                        &slice_scatter_in_place),
      in_place_operator("aten_recompute::select_scatter_(Tensor(a!) self, Tensor src, int dim, "
                        "int index) -> Tensor(a!)",
                        &select_scatter_in_place),
      pure_operator("aten_recompute::wrapped_index(int index, int size) -> int", &wrapped_index),
      pure_operator("aten_recompute::scatter_mean_backward(Tensor grad, int dim, Tensor index, "
                    "int[] source_size, bool include_self) -> (Tensor, Tensor)",
                    &scatter_mean_backward),
      pure_operator("aten_recompute::scatter_product_backward(Tensor grad, Tensor self, int dim, "
                    "Tensor index, Tensor source, bool include_self, Tensor result) "
                    "-> (Tensor, Tensor)",
                    &scatter_product_backward),
      pure_operator("aten_recompute::scatter_extremum_backward(Tensor grad, Tensor self, int dim, "
                    "Tensor index, Tensor source, Tensor result) -> (Tensor, Tensor)",
                    &scatter_extremum_backward),
  });
}

}  // namespace aten_recompute
