// Tensors that stand for others of which only the layout matters.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace aten_recompute {

// A tensor of these sizes, strides (in elements), dtype and device to give to a kernel that takes a
// tensor but reads no element of it, as the backward of a pooling takes its input. On the CPU of a
// POSIX system it takes no memory: its elements are pages of zeros that the system lends to whoever
// reads them; nobody may write to it. Elsewhere it is an uninitialised tensor, to be freed soon.
at::Tensor stand_in(std::vector<int64_t> size, std::vector<int64_t> stride, at::ScalarType dtype,
                    at::Device device);

// Sizes, strides, dtype and device as one list of ints, and the tensor that stands for what has
// them: the operators that formulas call. Graphs of values that are read one by one would have five
// nodes in place of two.
std::vector<int64_t> layout(at::Tensor tensor);
at::Tensor stand_in(std::vector<int64_t> layout);

}  // namespace aten_recompute
