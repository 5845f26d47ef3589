// Draws masks for dropouts.
#pragma once

#include <ATen/core/Tensor.h>

namespace aten_recompute {

// Returns `mask`, a bool tensor, or another one of its sizes and strides, with what bernoulli_(p)
// of a tensor of `type` in its place gives, from the same numbers of the device's default generator
// and leaving it in the same state. Where ATen draws one number of at::mt19937 after the other, on
// the CPU, this takes a tenth of its time. `p` must be between 0 and 1.
at::Tensor draw_random_mask(at::Tensor mask, at::ScalarType type, double p);

// Compares the masks of rules/kernels/vector with ATen's once per process, so that no later call
// has to. Thread-safe.
void choose_mask_kernel();

}  // namespace aten_recompute
