// group_norm, as ATen composes it of native_group_norm.
#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <tuple>

#include "passes/rules/boxing.h"
#include "passes/rules/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;

// On the CPU kernels know channels_last; elsewhere only contiguous tensors.
Tensor as_kernels_want(const Tensor& tensor, const Tensor& input) {
  return tensor.contiguous(input.device().is_cpu() ? input.suggest_memory_format()
                                                   : at::MemoryFormat::Contiguous);
}

std::optional<Tensor> contiguous(const std::optional<Tensor>& tensor) {
  if (!tensor || !tensor->defined())
    return std::nullopt;
  return tensor->contiguous();
}

int64_t positions(const Tensor& input) {
  return c10::multiply_integers(input.sizes().slice(2));
}

std::tuple<Tensor, Tensor, Tensor> group_norm(Tensor input, int64_t groups,
                                              std::optional<Tensor> weight,
                                              std::optional<Tensor> bias, double eps) {
  TORCH_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ",
              input.dim());
  return at::native_group_norm(as_kernels_want(input, input), contiguous(weight), contiguous(bias),
                               input.size(0), input.size(1), positions(input), groups, eps);
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(Tensor grad, Tensor input, Tensor mean,
                                                       Tensor rstd, std::optional<Tensor> weight,
                                                       int64_t groups, std::vector<bool> mask) {
  const auto rows = as_kernels_want(input, input);
  return at::native_group_norm_backward(
      as_kernels_want(grad, rows), rows, mean, rstd, contiguous(weight), input.size(0),
      input.size(1), positions(input), groups, std::array<bool, 3>{mask[0], mask[1], mask[2]});
}

}  // namespace

void register_normalization_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::group_norm(Tensor input, int num_groups, Tensor? weight, "
                    "Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
                    &group_norm),
      pure_operator("aten_recompute::group_norm_backward(Tensor grad, Tensor input, Tensor mean, "
                    "Tensor rstd, Tensor? weight, int num_groups, bool[] mask) "
                    "-> (Tensor, Tensor, Tensor)",
                    &group_norm_backward),
  });
}

}  // namespace aten_recompute
