// Gradients of distances between all rows of two tensors (torch.cdist), as ATen and autograd
// compute them (Distance.cpp, FunctionsManual.cpp).
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/by_autograd.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/stand_in.h"

namespace aten_recompute {
namespace {

using at::Tensor;

// The arguments of cdist besides its operands, whose rows are the second last dimension.
struct Distances {
  double p = 2;
  std::optional<int64_t> compute_mode;

  // ATen computes Euclidean distances of more than 25 rows as a matrix product, unless it is told
  // otherwise.
  bool are_by_product(const Tensor& x1, const Tensor& x2) const {
    constexpr int64_t kMostRowsOneByOne = 25;
    const auto mode = compute_mode.value_or(0);
    const bool has_many_rows = x1.size(-2) > kMostRowsOneByOne || x2.size(-2) > kMostRowsOneByOne;
    return p == 2 && x1.numel() > 0 && x2.numel() > 0 &&
           (mode == 1 || (mode == 0 && has_many_rows));
  }
};

// Returns `operand` with the batch dimensions of both operands, as one, as the product reads it.
Tensor as_batches(const Tensor& operand, at::IntArrayRef batch) {
  auto sizes = batch.vec();
  sizes.insert(sizes.end(), {operand.size(-2), operand.size(-1)});
  return operand.expand(sizes).contiguous().view({-1, operand.size(-2), operand.size(-1)});
}

// Returns the gradients of both operands of the product, in their sizes before they were expanded.
// A distance of zero has a gradient of zero.
std::pair<Tensor, Tensor> gradients_by_product(const Tensor& gradient, const Tensor& x1,
                                               const Tensor& x2, const Tensor& result,
                                               bool needs_first, bool needs_second) {
  const auto batch = at::infer_size(x1.sizes().slice(0, static_cast<size_t>(x1.dim() - 2)),
                                    x2.sizes().slice(0, static_cast<size_t>(x2.dim() - 2)));
  const bool is_one_batch = c10::multiply_integers(batch) == 1;
  const auto first = is_one_batch ? x1 : as_batches(x1, batch);
  const auto second = is_one_batch ? x2 : as_batches(x2, batch);
  auto sizes = at::infer_size(first.sizes().slice(0, static_cast<size_t>(first.dim() - 2)),
                              second.sizes().slice(0, static_cast<size_t>(second.dim() - 2)));
  sizes.insert(sizes.end(), {x1.size(-2), x2.size(-2)});
  const auto distances = result.view(sizes);
  auto ratio = gradient.reshape(sizes) / distances;
  ratio.masked_fill_(distances == 0, 0);
  const auto reduced = [&](Tensor of_batches, const Tensor& operand) {
    if (!is_one_batch) {
      auto expanded = batch;
      expanded.insert(expanded.end(), {operand.size(-2), operand.size(-1)});
      of_batches = of_batches.view(expanded);
    }
    return at::sum_to(std::move(of_batches), operand.sizes());
  };
  Tensor of_first;
  Tensor of_second;
  if (needs_first)
    of_first = reduced(first * ratio.sum(-1, /*keepdim=*/true) - ratio.matmul(second), x1);
  if (needs_second) {
    of_second = reduced(
        second * ratio.sum(-2, /*keepdim=*/false).unsqueeze(-1) - ratio.mT().matmul(first), x2);
  }
  return {of_first, of_second};
}

std::pair<Tensor, Tensor> gradients(const Tensor& gradient, const Tensor& x1, const Tensor& x2,
                                    const Distances& distances, const Tensor& result,
                                    bool needs_first, bool needs_second) {
  if (distances.are_by_product(x1, x2))
    return gradients_by_product(gradient, x1, x2, result, needs_first, needs_second);
  Tensor of_first;
  Tensor of_second;
  if (needs_first) {
    of_first = at::sum_to(at::_cdist_backward(gradient.contiguous(), x1, x2, distances.p, result),
                          x1.sizes());
  }
  if (needs_second) {
    of_second = at::sum_to(at::_cdist_backward(gradient.mT().contiguous(), x2, x1, distances.p,
                                               result.mT().contiguous()),
                           x2.sizes());
  }
  return {of_first, of_second};
}

// `is_of_itself`: both operands are one tensor, to whose gradient those of both are added in turn.
// Autograd comes to the second operand first where it has expanded both.
std::tuple<Tensor, Tensor> cdist_backward(Tensor gradient, Tensor x1, Tensor x2, double p,
                                          std::optional<int64_t> compute_mode, Tensor result,
                                          bool needs_first, bool needs_second, bool is_of_itself) {
  const Distances distances{p, compute_mode};
  auto [first, second] = gradients(gradient, x1, x2, distances, result, needs_first, needs_second);
  if (is_of_itself && distances.are_by_product(x1, x2) && x1.dim() > 2 &&
      x1.numel() > x1.size(-1) * x1.size(-2))
    std::swap(first, second);
  return {first.defined() ? first : zeros_without_memory(x1),
          second.defined() ? second : zeros_without_memory(x2)};
}

// Returns the gradients of cdist_backward()'s gradient, x1, x2 and result, given those of its
// results, of which the second may be undefined. As with autograd, only Euclidean distances that
// are computed as a product can be differentiated twice: others raise.
std::tuple<Tensor, Tensor, Tensor, Tensor> cdist_double_backward(
    Tensor grad_first, std::optional<Tensor> grad_second, Tensor gradient, Tensor x1, Tensor x2,
    double p, std::optional<int64_t> compute_mode, Tensor result, bool needs_first,
    bool needs_second) {
  const Distances distances{p, compute_mode};
  needs_second = needs_second && grad_second.has_value() && grad_second->defined();
  const std::vector<Tensor> operands{gradient, x1, x2, result};
  std::vector<Tensor> grads;
  if (needs_first)
    grads.push_back(grad_first);
  if (needs_second)
    grads.push_back(*grad_second);
  auto all = grads.empty()
                 ? std::vector<Tensor>(operands.size())
                 : gradients_by_autograd(
                       [&](const std::vector<Tensor>& inputs) {
                         const auto both = gradients(inputs[0], inputs[1], inputs[2], distances,
                                                     inputs[3], needs_first, needs_second);
                         std::vector<Tensor> results;
                         if (needs_first)
                           results.push_back(both.first);
                         if (needs_second)
                           results.push_back(both.second);
                         return results;
                       },
                       operands, grads);
  put_zeros_for_undefined(all, operands);
  return {all[0], all[1], all[2], all[3]};
}

}  // namespace

void register_distance_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::cdist_backward(Tensor gradient, Tensor x1, Tensor x2, float "
                    "p, int? compute_mode, Tensor distances, bool has_first, bool has_second, "
                    "bool is_of_itself) -> (Tensor, Tensor)",
                    &cdist_backward),
      pure_operator("aten_recompute::cdist_double_backward(Tensor grad_first, Tensor? grad_second, "
                    "Tensor gradient, Tensor x1, Tensor x2, float p, int? compute_mode, Tensor "
                    "distances, bool has_first, bool has_second) -> (Tensor, Tensor, Tensor, "
                    "Tensor)",
                    &cdist_double_backward),
  });
}

}  // namespace aten_recompute
