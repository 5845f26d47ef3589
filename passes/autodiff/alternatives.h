// Other ways to the same value, for the plan to choose from.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// Adds nodes to the joint graph, marked by attributes, that nothing reads yet:
//
//   kAlternativeTo   on a node that can run in place of the node before it whose Value::unique() is
//                    the attribute's value; attribute kGives says which outputs of that node it
//                    gives
//   kOptional        on a forward node that is of use to an alternative only
//
//   mask = dropout_mask(x, p)                             drawing again, or
//   bits = pack_bits(mask)                   kOptional    an eighth of the bytes kept, and
//   mask' = unpack_bits(bits, size, stride)  kAlternativeTo mask
//
//   y, mean, inverse, ... = batch_norm(x, w, b, ...)      the statistics once more, or
//   y' = batch_norm_from_statistics(x, w, b, mean, ...)   kAlternativeTo y
//
//   bits = positive_bits(y)                  kOptional    of a relu's result y
//   dx = threshold_backward(dy, y, 0)                     reading y, or
//   dx' = threshold_backward_bits(dy, bits, stride)       kAlternativeTo dx
//
// splice() keeps what a plan chose and removes the others. Results have equal bits either way.
void add_alternatives(JointGraph& joint);

}  // namespace aten_recompute
