// Makes tensors that stand in for others of which only the layout matters.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace aten_recompute {

// Returns a tensor of these sizes, strides (in elements), dtype and device, for a kernel that takes
// a tensor but reads no element of it, such as the backward of a pooling, which takes the input. On
// the CPU of a POSIX system it uses no memory: its elements are read-only pages of zeros that the
// system provides when they are read. Nothing may write to it. On other devices it is an
// uninitialized tensor, which should be freed soon.
at::Tensor stand_in(std::vector<int64_t> size, std::vector<int64_t> stride, at::ScalarType dtype,
                    at::Device device);

// Returns zeros in the sizes and the type of a tensor, in memory for one element: for a gradient
// that nobody needs.
at::Tensor zeros_without_memory(const at::Tensor& like);

// The operators that formulas call. layout() returns dtype, device, sizes and strides of a tensor
// as one list of ints, and stand_in() makes a stand-in from this list. Separate values would need
// five nodes instead of two.
std::vector<int64_t> layout(at::Tensor tensor);
at::Tensor stand_in(std::vector<int64_t> layout);

}  // namespace aten_recompute
