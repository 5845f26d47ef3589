// Gradients by description, where nothing runs that could make them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "passes/profile/described_values.h"
#include "passes/profile/node_results.h"

namespace aten_recompute {

// Returns a tensor without memory for the gradient that comes in for `output`: dense, except for
// the dimensions that are `expanded`. `expanded` may have fewer entries than the output has
// dimensions.
at::Tensor incoming_gradient(const at::Tensor& output, at::Device device,
                             const std::vector<bool>& expanded);

// Estimates a tape_backward. It returns a gradient as large as the operand for each operand of the
// tape that requires grad; seconds come from the FLOP model. `requires_grad` has one flag per
// operand of the tape.
NodeClass estimate_tape_backward(const Opaque& tape, const std::vector<int64_t>& requires_grad,
                                 DescribedStorages& storages);

}  // namespace aten_recompute
