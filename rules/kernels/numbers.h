// A tensor and a number. ATen makes a tensor of the number first, which takes longer than computing
// with a small tensor does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>

namespace aten_recompute {

enum class NumberOperation : uint8_t { kAdd, kSubtract, kMultiply, kDivide };

// at::add, sub, mul or div of a tensor and a number. Throws what these throw.
at::Tensor with_number(NumberOperation operation, const at::Tensor& self, const at::Scalar& number);

// The same, written to the tensor, which is returned. Its version is not counted on.
at::Tensor with_number_in_place(NumberOperation operation, at::Tensor self,
                                const at::Scalar& number);

}  // namespace aten_recompute
