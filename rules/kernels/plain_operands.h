// Which tensors kernels of this project compute with in place of ATen's.
#pragma once

#include <ATen/core/Tensor.h>

namespace aten_recompute {

// Returns whether the tensor has elements of float or double in the CPU's memory, as they are
// written there (LibTorch's zeros without memory have none), and autograd does not record what is
// computed from it. (A region that runs again for second derivatives is recorded.) Always false if
// RECOMPUTE_FASTER_OPERATORS=off.
bool is_plain_operand(const at::Tensor& tensor);

}  // namespace aten_recompute
