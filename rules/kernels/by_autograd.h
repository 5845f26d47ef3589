// Gradients of functions that ATen composes of several differentiable operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>

#include <functional>
#include <utility>
#include <vector>

#include "runtime/autograd_modes.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute {

// Returns the gradients of the inputs of `function`, given `grads`, the gradients of its results.
// `function` runs again under autograd, because a formula would not add gradients in the order of
// eager's engine. Where autograd records, the gradients have a graph themselves. A gradient is
// undefined where no result depends on the input.
inline std::vector<at::Tensor> gradients_by_autograd(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& function,
    std::vector<at::Tensor> inputs, const std::vector<at::Tensor>& grads) {
  const bool records_graph = at::GradMode::is_enabled();
  const OrdinaryAutograd guard;
  for (auto& input : inputs)
    input = beginning_of_graph(input, records_graph);
  auto results = function(inputs);
  if (!results[0].requires_grad())
    return std::vector<at::Tensor>(inputs.size());
  auto gradients = gradients_of(std::move(results), inputs, grads, records_graph);
  for (auto& gradient : gradients)
    gradient = with_memory(gradient);
  return gradients;
}

// The same for a function with one result.
inline std::vector<at::Tensor> gradients_by_autograd(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    std::vector<at::Tensor> inputs, const at::Tensor& grad) {
  return gradients_by_autograd(
      [&](const std::vector<at::Tensor>& operands) {
        return std::vector<at::Tensor>{function(operands)};
      },
      std::move(inputs), std::vector<at::Tensor>{grad});
}

// Puts zeros in place of undefined gradients of these operands.
inline void put_zeros_for_undefined(std::vector<at::Tensor>& gradients,
                                    const std::vector<at::Tensor>& operands) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined())
      gradients[i] = at::zeros_like(operands[i]);
  }
}

}  // namespace aten_recompute
