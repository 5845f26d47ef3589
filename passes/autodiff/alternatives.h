// Adds other ways to compute a value, which a plan may choose.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// Adds nodes to the joint graph that nothing reads yet. Attributes mark them:
//
//   kAlternativeTo   on a node that can run in place of an earlier node: the Value::unique() of
//   that
//                    node's first output. Attribute kGives lists the outputs that it replaces
//   kOptional        on a forward node that only an alternative reads
//
//   mask = dropout_mask(x, p)                             the mask is drawn again, or
//   bits = pack_bits(mask)                   kOptional    an eighth of its bytes is kept
//   mask' = unpack_bits(bits, size, stride)  kAlternativeTo mask
//
//   y, mean, inverse, ... = batch_norm(x, w, b, ...)      the statistics are computed again, or
//   y' = batch_norm_from_statistics(x, w, b, mean, ...)   kAlternativeTo y: they are kept
//
//   y = relu(x)
//   bits = positive_bits(y)                  kOptional
//   dx = threshold_backward(dy, y, 0)                     the backward reads y, or
//   dx' = threshold_backward_bits(dy, bits, stride)       kAlternativeTo dx: it reads bits
//
// splice() keeps the nodes that a plan chose and removes the others. Results are equal bit for bit.
void add_alternatives(JointGraph& joint);

}  // namespace aten_recompute
