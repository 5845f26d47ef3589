// Puts stretches of a forward that work row by row into operators that run slice by slice.
//
//   h = linear(x, w1, b1)        # x: 4096 x 64, h: 4096 x 1024
//   a = gelu(h)
//   y = linear(a, w2, b2)        # y: 4096 x 64
//
// becomes y = aten_recompute::sliced(x, w1, b1, w2, b2), in whose forward and backward only a slice
// of h, a and their gradients is in memory. So peaks are possible that no choice of what to compute
// again reaches: below what a single operator reads and writes.
//
// Results are those of the program up to rounding: a matrix product of some rows may be computed in
// another order, and gradients of weights are sums over slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "passes/region/forward_tensors.h"

namespace aten_recompute {

// What runs in slices, and how fine these are.
struct Slicing {
  // An operator runs in slices if it or its gradient needs more than this: operands, results and
  // workspace.
  int64_t limit_bytes = 0;
  // One number for each stretch, in the order in which slice_rows() makes them: what a slice needs
  // is small beside the limit times this number. The last one, or 1 where there is none, applies to
  // all further stretches.
  std::vector<int64_t> coarseness = {};
};

struct SlicedForward {
  std::shared_ptr<torch::jit::Graph> graph;
  size_t num_stretches = 0;
};

// Returns a copy of the forward whose large operators are in stretches that run slice by slice. A
// stretch begins and ends where little memory is alive; it may not contain what has
// effects, draws random numbers, or reads what may change before the backward.
SlicedForward slice_rows(const torch::jit::Graph& forward, const ForwardTensors& tensors,
                         const Slicing& slicing);

}  // namespace aten_recompute
