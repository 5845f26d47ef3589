// Products of tensors whose innermost dimensions are short, as those of spherical harmonics are.
// ATen calls a function for each row of the innermost two dimensions. This project walks through
// all rows in one loop, with the same bits and the same layout of the result.
#pragma once

#include <ATen/core/Tensor.h>

namespace aten_recompute {

// at::mul. Throws what at::mul throws.
at::Tensor mul(const at::Tensor& self, const at::Tensor& other);

// at::mul_out: writes the product to `result`, and returns it.
at::Tensor mul_to(const at::Tensor& self, const at::Tensor& other, at::Tensor result);

}  // namespace aten_recompute
