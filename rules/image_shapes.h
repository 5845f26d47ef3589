// Shape functions of operators on images that have no kernel for meta tensors without Python.
#pragma once

#include <ATen/core/stack.h>

#include "rules/shape_operands.h"

namespace aten_recompute::shapes {

torch::jit::Stack adaptive_pool(const Operands& operands);
torch::jit::Stack padded(const Operands& operands);
torch::jit::Stack unpadded(const Operands& operands);  // the gradient of that
torch::jit::Stack unfolded(const Operands& operands);  // im2col
torch::jit::Stack folded(const Operands& operands);    // col2im
torch::jit::Stack sampled(const Operands& operands);   // grid_sampler
torch::jit::Stack sampler_gradients(const Operands& operands);

}  // namespace aten_recompute::shapes
