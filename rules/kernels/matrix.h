// Gradients of mm, in the layout that autograd gives them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace aten_recompute {

// Returns the gradient of the left operand of mm(), which had these sizes and strides, times alpha.
at::Tensor mm_grad_self(const at::Tensor& grad, const at::Tensor& mat2, std::vector<int64_t> sizes,
                        std::vector<int64_t> strides, at::Scalar alpha);

// Returns the gradient of the right operand.
at::Tensor mm_grad_mat2(const at::Tensor& grad, const at::Tensor& mat1, std::vector<int64_t> sizes,
                        std::vector<int64_t> strides, at::Scalar alpha);

}  // namespace aten_recompute
