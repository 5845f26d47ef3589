// Masks that are stored as bits, in an eighth of the bytes of a bool tensor.
//
// Bit i % 8 of byte i / 8 is element i of the mask in memory order; bits after the last element are
// 0. The memory order is that of the tensor if it is dense, otherwise that of the copy that clone()
// makes, which keeps the order of dimensions.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace aten_recompute {

// Packs a bool tensor of any sizes and strides into a uint8 tensor of (numel + 7) / 8 elements.
// Throws c10::Error for another type.
at::Tensor pack_bits(at::Tensor mask);

// Returns the bool tensor of size `size` from which pack_bits() made `bits`. `stride` (in elements)
// is its stride; if that is not dense, a dense stride with the same order of dimensions is used.
// Throws c10::Error if `bits` has another number of bytes.
at::Tensor unpack_bits(at::Tensor bits, std::vector<int64_t> size, std::vector<int64_t> stride);

// Returns as bits where threshold_backward(grad, result, 0) passes the gradient on: where `result`
// is greater than 0 or NaN.
at::Tensor positive_bits(at::Tensor result);

// Computes threshold_backward(grad, result, 0) from bits = positive_bits(result) and stride =
// result.stride(). The result has the same bits, except for payloads of NaN.
at::Tensor threshold_backward_bits(at::Tensor grad, at::Tensor bits, std::vector<int64_t> stride);

namespace detail {
// Implementations by ATen's operators, for devices without a loop in bits.cpp.
at::Tensor pack_bits_by_operators(const at::Tensor& mask);
at::Tensor unpack_bits_by_operators(const at::Tensor& bits, const std::vector<int64_t>& size,
                                    const std::vector<int64_t>& stride);
}  // namespace detail

}  // namespace aten_recompute
