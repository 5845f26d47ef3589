// Makes one operator of the gradients of disjoint parts of a value.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// A value of which only parts are read gets a gradient from each: as large as the value, and zero
// outside of the part. Eager PyTorch adds these up, so that a loop over the T steps of a sequence
// writes and adds T tensors of the size of the sequence. Where the parts are known to be disjoint,
// the sum is one operator that writes each gradient to its place:
//
//   %a = aten::select_backward(%g, %size, 1, 1)         %sum = aten_recompute::selects_backward(
//   %b = aten::select_backward(%h, %size, 1, 0)   ==>       [%g, %h], %size, 1, [1, 0])
//   %sum = aten_recompute::accumulate(%a, %b)
//
// and likewise slice_backward, of which narrow() has one, too. Bits are those of eager's sum: an
// element is the gradient of its part plus zeros. Parts are disjoint by constants, or by a common
// bound, `x[:n]` and `x[n:]`. x[0] and x[-1] are one element where there is no other: the operator
// looks at that when it runs, and then adds one after the other.
//
// Sums of gradients of a region's inputs are left as they are: their summands leave the region one
// by one (passes/partition/split_sums.h).
void sum_parts(JointGraph& joint);

}  // namespace aten_recompute
