// The deterministic cost model, which knows sizes only.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Returns the floating-point operations of one run. A multiply-add counts as two, an elementwise
// operator as one per element of its results. Only the sizes of tensors are read, so they may be
// meta tensors.
double count_flops(const torch::jit::Node* node, const std::vector<c10::IValue>& operands,
                   const std::vector<c10::IValue>& results);

// Returns seconds on an imaginary machine with 100 GFLOP/s and 10 GB/s, which does not overlap the
// two, plus 2 us per call. Only ratios of such seconds are meaningful.
double model_seconds(double flops, double bytes_moved);

}  // namespace aten_recompute
