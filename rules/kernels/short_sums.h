// Sums over dimensions of tensors whose innermost dimensions are short. ATen calls a function for
// each pair of the two innermost loops. This project walks through all of them in one loop, with
// the same order of sums and so with the same bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace aten_recompute {

// at::sum_to: sums over the dimensions that `sizes` does not have, or in which it has size 1.
at::Tensor sum_to(at::Tensor tensor, at::IntArrayRef sizes);

// The same of at::mul(tensor, other), mostly without memory for that product.
at::Tensor sum_product_to(const at::Tensor& tensor, const at::Tensor& other, at::IntArrayRef sizes);

}  // namespace aten_recompute
