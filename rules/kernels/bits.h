// Masks kept as bits: an eighth of the bytes of a bool tensor.
//
// Bit i % 8 of byte i / 8 is element i of the mask in memory order; bits after the last are 0. The
// memory order is the tensor's own where it is dense, otherwise that of a copy which keeps its
// order of dimensions (as clone() makes it).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace aten_recompute {

// `mask` is bool, of any sizes and strides; the result is uint8 of (numel + 7) / 8 elements.
at::Tensor pack_bits(at::Tensor mask);

// The bool tensor of this size that pack_bits() made `bits` of, if `stride` (in elements) was its
// stride; dense where that is not. Throws c10::Error where `bits` has another number of bytes.
at::Tensor unpack_bits(at::Tensor bits, std::vector<int64_t> size, std::vector<int64_t> stride);

// Where threshold_backward(grad, result, 0) lets the gradient through: result > 0, or NaN.
at::Tensor positive_bits(at::Tensor result);

// threshold_backward(grad, result, 0) from bits = positive_bits(result) and stride =
// result.stride(): equal to it in every bit but the payloads of NaN.
at::Tensor threshold_backward_bits(at::Tensor grad, at::Tensor bits, std::vector<int64_t> stride);

namespace detail {
// The same by ATen's operators, for devices without a loop of ours.
at::Tensor pack_bits_by_operators(const at::Tensor& mask);
at::Tensor unpack_bits_by_operators(const at::Tensor& bits, const std::vector<int64_t>& size,
                                    const std::vector<int64_t>& stride);
}  // namespace detail

}  // namespace aten_recompute
