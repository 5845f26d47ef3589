// Sums of the gradients of parts of a tensor (passes/autodiff/sum_parts.h).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/slice_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using Sizes = std::vector<int64_t>;
using Gradients = c10::List<std::optional<at::Tensor>>;

// The part [start, end) of a dimension, of which every step-th element is read.
struct Slice {
  at::Tensor gradient;
  int64_t start = 0;
  int64_t end = 0;
};
using Slices = std::vector<Slice>;

bool are_disjoint(const Slices& ascending, int64_t step) {
  const auto overlap = [](const Slice& a, const Slice& b) { return a.end > b.start; };
  if (std::adjacent_find(ascending.begin(), ascending.end(), overlap) == ascending.end())
    return true;
  std::set<int64_t> phases;
  return std::all_of(ascending.begin(), ascending.end(),
                     [&](const Slice& slice) { return phases.insert(slice.start % step).second; });
}

bool are_alike(const Slices& slices) {
  const auto& first = slices[0].gradient;
  return std::all_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    const auto& gradient = slice.gradient;
    return gradient.layout() == at::kStrided && gradient.dtype() == first.dtype() &&
           gradient.device() == first.device();
  });
}

// Returns whether the slices, which are disjoint, are all of a dimension of this size.
bool cover(const Slices& ascending, int64_t step, int64_t size) {
  int64_t end = 0;
  for (const auto& slice : ascending) {
    if (step != 1 || slice.start != end)
      return false;
    end = slice.end;
  }
  return end == size;
}

// Returns the sum for disjoint slices, of which there are several. An element of a slice is its
// gradient + 0, which turns -0 into 0, as eager PyTorch's sum does.
at::Tensor sum_of_disjoint(const Slices& ascending, const Sizes& size, int64_t dim, int64_t step) {
  const auto options = ascending[0].gradient.options();
  if (!cover(ascending, step, size[static_cast<size_t>(dim)])) {
    auto sum = at::zeros(size, options);
    for (const auto& [gradient, start, end] : ascending)
      sum.slice(dim, start, end, step).add_(gradient);
    return sum;
  }
  auto sum = at::empty(size, options);
  std::vector<at::Tensor> gradients;
  for (const auto& slice : ascending)
    gradients.push_back(slice.gradient);
  at::cat_out(sum, gradients, dim);
  return sum.add_(0);
}

// Returns the gradient of a tensor of this size. Undefined gradients of slices do not count.
at::Tensor sum_of_slices(Slices slices, const Sizes& size, int64_t dim, int64_t step) {
  std::erase_if(slices, [](const Slice& slice) { return !slice.gradient.defined(); });
  TORCH_CHECK(!slices.empty(), "no gradient of the list is defined");
  const auto length = size.at(static_cast<size_t>(dim));
  const auto within = [&](int64_t bound) {
    return std::clamp<int64_t>(bound < 0 ? bound + length : bound, 0, length);
  };
  for (auto& slice : slices) {
    slice.start = within(slice.start);
    slice.end = std::max(slice.start, within(slice.end));
  }
  auto ascending = slices;
  std::stable_sort(ascending.begin(), ascending.end(),
                   [](const Slice& a, const Slice& b) { return a.start < b.start; });
  if (slices.size() > 1 && are_alike(slices) && are_disjoint(ascending, step))
    return sum_of_disjoint(ascending, size, dim, step);
  at::Tensor sum;
  for (const auto& [gradient, start, end] : slices) {
    const auto part = at::slice_backward(gradient, size, dim, start, end, step);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

at::Tensor slices_backward(Gradients gradients, Sizes size, int64_t dim, Sizes starts, Sizes ends,
                           int64_t step) {
  Slices slices;
  for (size_t i = 0; i < gradients.size(); ++i)
    slices.push_back({gradients.get(i).value_or(at::Tensor()), starts.at(i), ends.at(i)});
  const auto axis = c10::maybe_wrap_dim(dim, static_cast<int64_t>(size.size()));
  return sum_of_slices(std::move(slices), size, axis, step);
}

// A selected part is a slice of one element.
at::Tensor selects_backward(Gradients gradients, Sizes size, int64_t dim, Sizes indices) {
  const auto axis = c10::maybe_wrap_dim(dim, static_cast<int64_t>(size.size()));
  const auto length = size.at(static_cast<size_t>(axis));
  Slices slices;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto gradient = gradients.get(i).value_or(at::Tensor());
    const auto start = indices.at(i) < 0 ? indices[i] + length : indices[i];
    slices.push_back({gradient.defined() ? gradient.unsqueeze(axis) : gradient, start, start + 1});
  }
  return sum_of_slices(std::move(slices), size, axis, /*step=*/1);
}

}  // namespace

void register_part_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::slices_backward(Tensor?[] gradients, int[] size, int dim, "
                    "int[] starts, int[] ends, int step) -> Tensor",
                    &slices_backward),
      pure_operator("aten_recompute::selects_backward(Tensor?[] gradients, int[] size, int dim, "
                    "int[] indices) -> Tensor",
                    &selects_backward),
  });
}

}  // namespace aten_recompute
