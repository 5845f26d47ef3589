// Shape functions of convolutions, whose workspace depends on the kernel that LibTorch chooses.
#pragma once

#include <ATen/core/stack.h>

#include "rules/shape_operands.h"

namespace aten_recompute::shapes {

torch::jit::Stack convolution(const Operands& operands);
torch::jit::Stack transposed_convolution(const Operands& operands);
torch::jit::Stack convolution_backward(const Operands& operands);

}  // namespace aten_recompute::shapes
