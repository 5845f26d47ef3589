// Gradients of convolutions for inputs without a batch dimension, padding given as a word, and
// complex numbers. ATen's forward reduces all of these to plain convolutions.
#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/by_autograd.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using Sizes = std::vector<int64_t>;
using Mask = std::vector<bool>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

struct Parameters {
  Sizes stride, padding, dilation;
  bool transposed;
  Sizes output_padding;
  int64_t groups;
  Sizes bias_size;
};

Gradients real_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                        const Parameters& p, const Mask& mask) {
  return at::convolution_backward(grad, input, weight, p.bias_size, p.stride, p.padding, p.dilation,
                                  p.transposed, p.output_padding, p.groups,
                                  std::array<bool, 3>{mask[0], mask[1], mask[2]});
}

// Calls the operators that compute a complex convolution as three real ones.
Tensor complex_convolution(const Tensor& input, const Tensor& weight, const Tensor& bias,
                           const Parameters& p) {
  const auto spatial = weight.dim() - 2;
  if (p.transposed) {
    const auto call = [&](const auto& function) {
      return function(input, weight, bias, p.stride, p.padding, p.output_padding, p.groups,
                      p.dilation);
    };
    if (spatial == 1)
      return call([](auto&&... a) { return at::conv_transpose1d(a...); });
    if (spatial == 2)
      return call([](auto&&... a) { return at::conv_transpose2d(a...); });
    return call([](auto&&... a) { return at::conv_transpose3d(a...); });
  }
  const at::IntArrayRef padding(p.padding);
  if (spatial == 1)
    return at::conv1d(input, weight, bias, p.stride, padding, p.dilation, p.groups);
  if (spatial == 2)
    return at::conv2d(input, weight, bias, p.stride, padding, p.dilation, p.groups);
  return at::conv3d(input, weight, bias, p.stride, padding, p.dilation, p.groups);
}

Gradients complex_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                           const Parameters& p, const Mask& mask) {
  const auto bias = at::zeros(p.bias_size, input.options());
  const auto all = gradients_by_autograd(
      [&](const auto& inputs) { return complex_convolution(inputs[0], inputs[1], inputs[2], p); },
      {input, weight, bias}, grad);
  return {mask[0] ? all[0] : Tensor(), mask[1] ? all[1] : Tensor(), mask[2] ? all[2] : Tensor()};
}

Gradients backward(Tensor grad, Tensor input, const Tensor& weight, const Parameters& p,
                   const Mask& mask) {
  const bool batched = input.dim() == weight.dim();
  if (!batched) {
    grad = grad.unsqueeze(0);
    input = input.unsqueeze(0);
  }
  auto gradients = input.is_complex() ? complex_backward(grad, input, weight, p, mask)
                                      : real_backward(grad, input, weight, p, mask);
  auto& grad_input = std::get<0>(gradients);
  if (!batched && grad_input.defined())
    grad_input = grad_input.squeeze(0);
  return gradients;
}

Sizes size_of_bias(const Tensor& weight, bool transposed, int64_t groups) {
  return {transposed ? weight.size(1) * groups : weight.size(0)};
}

Gradients convolution_backward(Tensor grad, Tensor input, Tensor weight, Sizes stride,
                               Sizes padding, Sizes dilation, bool transposed, Sizes output_padding,
                               int64_t groups, Mask mask) {
  const Parameters parameters{std::move(stride),
                              std::move(padding),
                              std::move(dilation),
                              transposed,
                              std::move(output_padding),
                              groups,
                              size_of_bias(weight, transposed, groups)};
  return backward(std::move(grad), std::move(input), weight, parameters, mask);
}

// As in Convolution.cpp, _convolution_mode: "same" pads more on the right if the total padding is
// odd, for which the input is copied.
Gradients convolution_mode_backward(Tensor grad, Tensor input, Tensor weight, Sizes stride,
                                    std::string padding, Sizes dilation, int64_t groups,
                                    Mask mask) {
  const auto spatial = static_cast<size_t>(weight.dim()) - 2;
  Parameters parameters{std::move(stride),
                        Sizes(spatial, 0),
                        std::move(dilation),
                        false,
                        Sizes(spatial, 0),
                        groups,
                        size_of_bias(weight, false, groups)};
  if (padding == "valid")
    return backward(grad, input, weight, parameters, mask);
  Sizes right(2 * spatial, 0);  // for constant_pad_nd, last dimension first
  bool symmetric = true;
  for (size_t i = 0; i < spatial; ++i) {
    const auto step =
        parameters.dilation.size() == 1 ? parameters.dilation[0] : parameters.dilation[i];
    const auto total = step * (weight.size(static_cast<int64_t>(i) + 2) - 1);
    parameters.padding[i] = total / 2;
    right[2 * (spatial - 1 - i) + 1] = total % 2;
    symmetric = symmetric && total % 2 == 0;
  }
  if (symmetric)
    return backward(grad, input, weight, parameters, mask);
  auto gradients = backward(grad, at::constant_pad_nd(input, right, 0), weight, parameters, mask);
  auto& grad_input = std::get<0>(gradients);
  if (grad_input.defined()) {
    for (auto& amount : right)
      amount = -amount;
    grad_input = at::constant_pad_nd(grad_input, right, 0);
  }
  return gradients;
}

}  // namespace

void register_convolution_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::convolution_backward(Tensor grad, Tensor input, "
                    "Tensor weight, int[] stride, int[] padding, int[] dilation, bool transposed, "
                    "int[] output_padding, int groups, bool[] mask) -> (Tensor, Tensor, Tensor)",
                    &convolution_backward),
      pure_operator("aten_recompute::convolution_mode_backward(Tensor grad, Tensor input, "
                    "Tensor weight, int[] stride, str padding, int[] dilation, int groups, "
                    "bool[] mask) -> (Tensor, Tensor, Tensor)",
                    &convolution_mode_backward),
  });
}

}  // namespace aten_recompute
