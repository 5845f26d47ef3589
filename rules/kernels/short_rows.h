// Products, and sums over dimensions, of tensors whose innermost dimensions are short, as those of
// spherical harmonics are. ATen calls a function for each row of the innermost two dimensions. This
// project walks through all rows in one loop, with the same bits and the same layout of the result.
#pragma once

#include <ATen/core/Tensor.h>

namespace aten_recompute {

// at::mul. Throws what at::mul throws.
at::Tensor mul(const at::Tensor& self, const at::Tensor& other);

// at::mul_out: writes the product to `result`, and returns it.
at::Tensor mul_to(const at::Tensor& self, const at::Tensor& other, at::Tensor result);

// at::sum_to: sums over the dimensions that `sizes` does not have, or in which it has size 1.
at::Tensor sum_to(at::Tensor tensor, at::IntArrayRef sizes);

}  // namespace aten_recompute
