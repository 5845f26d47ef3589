// A tensor and a number. ATen makes a tensor of the number first, which takes longer than computing
// with a small tensor does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>

namespace aten_recompute {

enum class NumberOperation : uint8_t { kAdd, kSubtract, kMultiply, kDivide };

// The sum, difference, product or quotient of a tensor and a number, with the bits and strides of
// ATen's; nullopt where that has to compute it.
std::optional<at::Tensor> with_number(NumberOperation operation, const at::Tensor& self,
                                      const at::Scalar& number);

// The same, written to the tensor, whose version is not counted on. Returns whether it was.
bool with_number_in_place(NumberOperation operation, const at::Tensor& self,
                          const at::Scalar& number);

}  // namespace aten_recompute
