// The deterministic cost model: what an operator computes and moves, from sizes alone.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Floating-point operations of one run; a multiply-add counts as two, an elementwise operator as
// one per element of its results. Tensors need sizes only (meta tensors will do).
double count_flops(const torch::jit::Node* node, const std::vector<c10::IValue>& operands,
                   const std::vector<c10::IValue>& results);

// Seconds on an imaginary machine: 100 GFLOP/s and 10 GB/s, one after the other, and 2 us a call.
// Its figures matter only in relation to each other.
double model_seconds(double flops, double bytes_moved);

}  // namespace aten_recompute
