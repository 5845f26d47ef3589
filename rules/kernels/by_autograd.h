// Gradients of functions that ATen composes of several differentiable operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "runtime/autograd_modes.h"

namespace aten_recompute {

// Returns the gradients of the inputs of `function`, given `grad`, the gradient of its result.
// `function` runs again under autograd, because a formula would not add gradients in the order of
// eager's engine.
inline std::vector<at::Tensor> gradients_by_autograd(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    std::vector<at::Tensor> inputs, const at::Tensor& grad) {
  const OrdinaryAutograd guard;
  for (auto& input : inputs)
    input = input.detach().requires_grad_();
  return torch::autograd::grad({function(inputs)}, inputs, {grad}, /*retain_graph=*/std::nullopt,
                               /*create_graph=*/false, /*allow_unused=*/true);
}

}  // namespace aten_recompute
