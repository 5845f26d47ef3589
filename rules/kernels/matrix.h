// Gradients of mm and linear, in the layout that autograd gives them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace aten_recompute {

// Returns the gradient of the left operand of mm(), which had these sizes and strides, times alpha.
at::Tensor mm_grad_self(const at::Tensor& grad, const at::Tensor& mat2, at::IntArrayRef sizes,
                        at::IntArrayRef strides, at::Scalar alpha);

// Returns the gradient of the right operand.
at::Tensor mm_grad_mat2(const at::Tensor& grad, const at::Tensor& mat1, at::IntArrayRef sizes,
                        at::IntArrayRef strides, at::Scalar alpha);

// Returns whether linear() passes its input to addmm as a matrix.
bool linear_flattens(at::Tensor input, std::optional<at::Tensor> bias);

// Returns what at::linear() returns for an input and a weight that require grad as the flags say.
at::Tensor linear(at::Tensor input, at::Tensor weight, std::optional<at::Tensor> bias,
                  bool needs_input, bool needs_weight);

// The gradients of linear(). Sizes and strides are those of the argument; `flattened` is what
// linear_flattens() returned.
at::Tensor linear_grad_bias(at::Tensor grad, std::vector<int64_t> sizes, bool flattened);
at::Tensor linear_grad_weight(at::Tensor grad, at::Tensor input, std::vector<int64_t> sizes,
                              std::vector<int64_t> strides, bool flattened, bool needs_input);
at::Tensor linear_grad_input(at::Tensor grad, at::Tensor weight, std::vector<int64_t> sizes,
                             std::vector<int64_t> strides, bool flattened, bool needs_weight);

}  // namespace aten_recompute
