// Gradients of sampling operators that choose their kernel at run time.
#include <ATen/Functions.h>
#include <ATen/native/GridSamplerUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <array>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

std::optional<double> scale_factor(const std::optional<std::vector<double>>& factors,
                                   int64_t index) {
  if (!factors.has_value())
    return std::nullopt;
  return factors->at(static_cast<size_t>(index));
}

// Chooses the kernel as at::grid_sampler does.
std::tuple<at::Tensor, at::Tensor> grid_sampler_backward(const at::Tensor& gradient,
                                                         const at::Tensor& input,
                                                         const at::Tensor& grid,
                                                         int64_t interpolation_mode,
                                                         int64_t padding_mode, bool align_corners,
                                                         bool needs_input, bool needs_grid) {
  if (at::native::cond_cudnn_grid_sampler(input, grid) && interpolation_mode == 0 &&
      padding_mode == 0 && align_corners) {
    return at::cudnn_grid_sampler_backward(input, grid, gradient);
  }
  const std::array<bool, 2> mask{needs_input, needs_grid};
  auto kernel = input.dim() == 4 ? &at::grid_sampler_2d_backward : &at::grid_sampler_3d_backward;
  auto [for_input, for_grid] =
      kernel(gradient, input, grid, interpolation_mode, padding_mode, align_corners, mask);
  // Kernels return undefined tensors for gradients that are not needed, but the operator has to
  // return tensors.
  if (!for_input.defined())
    for_input = for_grid;
  if (!for_grid.defined())
    for_grid = for_input;
  return {for_input, for_grid};
}

}  // namespace

void register_pooling_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::scale_factor(float[]? factors, int index) -> float?",
                    &scale_factor),
      pure_operator("aten_recompute::grid_sampler_backward(Tensor grad, Tensor input, Tensor grid, "
                    "int interpolation_mode, int padding_mode, bool align_corners, "
                    "bool needs_input, bool needs_grid) -> (Tensor, Tensor)",
                    &grid_sampler_backward),
  });
}

}  // namespace aten_recompute
