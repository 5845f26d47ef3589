// Gradients of reductions that ATen does not have as operators (FunctionsManual.cpp).
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <cmath>
#include <limits>
#include <optional>

#include "rules/kernels/boxing.h"
#include "rules/kernels/by_autograd.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;
using Sizes = std::vector<int64_t>;
using ReducedDims = std::optional<Sizes>;

ReducedDims pop_dims(Stack& stack) {
  const auto value = pop(stack);
  if (value.isNone())
    return std::nullopt;
  return value.toIntVector();
}

std::optional<at::Tensor> pop_optional_tensor(Stack& stack) {
  const auto value = pop(stack);
  if (value.isNone())
    return std::nullopt;
  return value.toTensor();
}

int64_t wrapped(int64_t dim, int64_t rank) {
  return dim < 0 ? dim + rank : dim;
}

// Returns the shape of a reduction over `dims` with keepdim. Without dims, all dimensions are
// reduced.
Sizes kept_size(Sizes size, const ReducedDims& dims) {
  if (!dims.has_value() || dims->empty())
    return Sizes(size.size(), 1);
  if (size.empty())
    return size;
  for (const auto dim : *dims)
    size.at(static_cast<size_t>(wrapped(dim, static_cast<int64_t>(size.size())))) = 1;
  return size;
}

int64_t reduced_numel(const Sizes& size, const ReducedDims& dims) {
  const auto kept = kept_size(size, dims);
  int64_t count = 1;
  for (size_t i = 0; i < size.size(); ++i) {
    if (kept[i] != size[i])
      count *= size[i];
  }
  return count;
}

void push_kept_size(Stack& stack) {
  const auto dims = pop_dims(stack);
  stack.emplace_back(kept_size(pop(stack).toIntVector(), dims));
}

void push_reduced_numel(Stack& stack) {
  const auto dims = pop_dims(stack);
  stack.emplace_back(reduced_numel(pop(stack).toIntVector(), dims));
}

void cumsum_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  const auto gradient = pop(stack).toTensor();
  const bool trivial = gradient.numel() <= 1 || gradient.size(dim) == 1;
  stack.emplace_back(trivial ? gradient : gradient.flip(dim).cumsum(dim).flip(dim));
}

void evenly_distribute_backward(Stack& stack) {
  const auto value = pop(stack).toTensor();
  const auto self = pop(stack).toTensor();
  const auto gradient = pop(stack).toTensor();
  if (self.is_cuda()) {
    // This does not wait for the GPU.
    const auto mask = (self == value).logical_or_(self.isnan().logical_and_(value.isnan()));
    stack.emplace_back(mask * (gradient / mask.sum()));
    return;
  }
  const auto mask = value.isnan().item<bool>() ? self.isnan() : self == value;
  stack.emplace_back(
      at::zeros(self.sizes(), self.options()).masked_fill_(mask, gradient / mask.sum()));
}

// Computes the product of all other elements without a division, from the products of the elements
// before and after each.
at::Tensor prod_safe_zeros_backward(const at::Tensor& gradient, const at::Tensor& self,
                                    int64_t dim) {
  if (self.numel() == 0)
    return at::zeros_like(self);
  const auto length = self.size(dim);
  if (length == 1)
    return gradient;
  auto ones_size = self.sizes().vec();
  ones_size[static_cast<size_t>(wrapped(dim, self.dim()))] = 1;
  const auto ones = at::ones(ones_size, gradient.options());
  const auto before = at::cat({ones, self.narrow(dim, 0, length - 1)}, dim).cumprod(dim);
  const auto after =
      at::cat({ones, self.narrow(dim, 1, length - 1).flip(dim)}, dim).cumprod(dim).flip(dim);
  return gradient * (before * after).conj();
}

void prod_backward(Stack& stack) {
  const auto result = pop(stack).toTensor();
  const auto self = pop(stack).toTensor();
  const auto gradient = pop(stack).toTensor();
  if (self.dim() == 0) {
    stack.emplace_back(gradient.clone());
    return;
  }
  const auto zeros = (self == 0).nonzero().size(0);
  if (zeros == 0) {
    stack.emplace_back(gradient * (result / self).conj());
  } else if (zeros > 1) {
    stack.emplace_back(at::zeros_like(self));
  } else {
    stack.emplace_back(
        prod_safe_zeros_backward(gradient, self.contiguous().view(-1), 0).view_as(self));
  }
}

void prod_dim_backward(Stack& stack) {
  const bool keepdim = pop(stack).toBool();
  auto dim = pop(stack).toInt();
  auto result = pop(stack).toTensor();
  const auto self = pop(stack).toTensor();
  auto gradient = pop(stack).toTensor();
  if (self.dim() == 0) {
    stack.emplace_back(gradient.clone());
    return;
  }
  dim = wrapped(dim, self.dim());
  if (!keepdim && self.dim() != 1) {
    gradient = gradient.unsqueeze(dim);
    result = result.unsqueeze(dim);
  }
  if ((self == 0).any().item<bool>())
    stack.emplace_back(prod_safe_zeros_backward(gradient, self, dim));
  else
    stack.emplace_back(gradient * (result / self).conj());
}

at::Tensor norm_gradient(const at::Tensor& gradient, const at::Tensor& self, double p,
                         const at::Tensor& norm, const Sizes& dims) {
  // The number of non-zero elements is constant almost everywhere. (Eager PyTorch leaves the
  // gradient undefined.)
  if (p == 0.0)
    return at::zeros_like(self);
  if (p == 1.0)
    return self.sgn() * gradient;
  if (p == 2.0)
    return gradient * (self / norm).masked_fill_(norm == 0, 0);
  if (std::isinf(p)) {
    const auto absolute = self.abs();
    const auto mask = absolute.eq(norm).logical_or_(absolute.isnan());
    return self.sgn() * ((gradient / mask.sum(dims, /*keepdim=*/true)) * mask);
  }
  if (p < 1.0) {
    const auto scaled = self.sgn() * self.abs().pow_(p - 1).masked_fill_(self == 0, 0);
    return scaled * gradient * norm.pow(1 - p);
  }
  const auto scaled = p < 2.0 ? self.sgn() * self.abs().pow_(p - 1) : self * self.abs().pow_(p - 2);
  auto scale = gradient / norm.pow(p - 1);
  scale.masked_fill_(norm == 0, 0);
  return scaled * scale;
}

void at_least(Stack& stack) {
  const auto bound = pop(stack).toDouble();
  stack.emplace_back(at::clamp_min(pop(stack).toTensor(), bound));
}

void norm_backward(Stack& stack) {
  const auto dims = pop_dims(stack);
  auto norm = pop(stack).toTensor();
  const auto p = pop(stack);
  const auto self = pop(stack).toTensor();
  auto gradient = pop(stack).toTensor();
  const auto kept = kept_size(self.sizes().vec(), dims);
  if (dims.has_value() || norm.dim() != 0) {
    gradient = gradient.view(kept);
    norm = norm.view(kept);
  }
  const auto order = p.isNone() ? 2.0 : p.toScalar().toDouble();
  stack.emplace_back(norm_gradient(gradient, self, order, norm, dims.value_or(Sizes{})));
}

// Returns the gradients of norm_backward()'s gradient, self and norm.
std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_double_backward(
    at::Tensor grad, at::Tensor gradient, at::Tensor self, std::optional<at::Scalar> p,
    at::Tensor norm, std::optional<Sizes> dims) {
  const auto function = [&](const std::vector<at::Tensor>& inputs) {
    Stack stack{inputs[0], inputs[1], p, inputs[2], dims};
    norm_backward(stack);
    return pop(stack).toTensor();
  };
  auto gradients = gradients_by_autograd(function, {gradient, self, norm}, grad);
  const std::vector<at::Tensor> operands{gradient, self, norm};
  put_zeros_for_undefined(gradients, operands);
  return {gradients[0], gradients[1], gradients[2]};
}

at::Tensor var_gradient(const at::Tensor& gradient, const at::Tensor& self, const ReducedDims& dims,
                        double correction) {
  if (self.dim() == 0 || !dims.has_value()) {
    const auto degrees = static_cast<double>(self.numel()) - correction;
    if (degrees <= 0) {
      return gradient * at::where(self == self.mean(), std::numeric_limits<double>::quiet_NaN(),
                                  std::numeric_limits<double>::infinity());
    }
    return (2.0 / degrees) * gradient.reshape(kept_size(self.sizes().vec(), dims)) *
           (self - self.mean());
  }
  const auto degrees = static_cast<double>(reduced_numel(self.sizes().vec(), dims)) - correction;
  return (2.0 / degrees) * gradient.view(kept_size(self.sizes().vec(), dims)) *
         (self - self.mean(*dims, /*keepdim=*/true));
}

// Sums the gradients of the variance (or of the standard deviation `std`) and of the mean.
void var_mean_backward(Stack& stack) {
  const auto correction = pop(stack);
  const auto dims = pop_dims(stack);
  const auto self = pop(stack).toTensor();
  const auto std = pop_optional_tensor(stack);
  const auto mean_gradient = pop_optional_tensor(stack);
  auto gradient = pop(stack).toTensor();
  if (std.has_value())
    gradient = (gradient / (*std * 2)).masked_fill_(*std == 0, 0);
  auto result = var_gradient(gradient, self, dims,
                             correction.isNone() ? 1.0 : correction.toScalar().toDouble());
  if (mean_gradient.has_value()) {
    const auto size = self.sizes().vec();
    result = result +
             mean_gradient->view(kept_size(size, dims)).expand(size) / reduced_numel(size, dims);
  }
  stack.emplace_back(std::move(result));
}

}  // namespace

void register_reduction_operators() {
  using torch::jit::Operator;
  const auto pure = c10::AliasAnalysisKind::PURE_FUNCTION;
  static const torch::jit::RegisterOperators registered({
      Operator("aten_recompute::kept_size(int[] size, int[]? dim) -> int[]", push_kept_size, pure),
      Operator("aten_recompute::reduced_numel(int[] size, int[]? dim) -> int", push_reduced_numel,
               pure),
      Operator("aten_recompute::cumsum_backward(Tensor gradient, int dim) -> Tensor",
               cumsum_backward, pure),
      Operator("aten_recompute::evenly_distribute_backward(Tensor gradient, Tensor self, "
               "Tensor value) -> Tensor",
               evenly_distribute_backward, pure),
      Operator(
          "aten_recompute::prod_backward(Tensor gradient, Tensor self, Tensor result) -> Tensor",
          prod_backward, pure),
      Operator("aten_recompute::prod_dim_backward(Tensor gradient, Tensor self, Tensor result, "
               "int dim, bool keepdim) -> Tensor",
               prod_dim_backward, pure),
      Operator(
          "aten_recompute::norm_backward(Tensor gradient, Tensor self, Scalar? p, Tensor norm, "
          "int[]? dim) -> Tensor",
          norm_backward, pure),
      pure_operator("aten_recompute::norm_double_backward(Tensor grad, Tensor gradient, Tensor "
                    "self, Scalar? p, Tensor norm, int[]? dim) -> (Tensor, Tensor, Tensor)",
                    &norm_double_backward),
      Operator("aten_recompute::at_least(Tensor self, float bound) -> Tensor", at_least, pure),
      Operator("aten_recompute::var_mean_backward(Tensor gradient, Tensor? mean_grad, Tensor? std, "
               "Tensor self, int[]? dim, Scalar? correction) -> Tensor",
               var_mean_backward, pure),
  });
}

}  // namespace aten_recompute
