// Operators without a gradient rule: tape_forward in their place, tape_backward to match
// (runtime/tape.h).
#pragma once

#include "passes/autodiff/gradient_sums.h"

namespace aten_recompute {

// Replaces `node` by a tape_forward, which it returns, and says in `sums` which of its outputs
// require grad:
//
//   y = op(x, n)          ==>    y, tape = tape_forward[op, requires_grad=[1, 0]](x, n)
torch::jit::Node* put_on_tape(torch::jit::Node* node, GradientSums& sums);

// Inserts the tape_backward of `tape`, a result of put_on_tape, if an output of it has a gradient,
// and adds up what it gives.
void insert_tape_backward(torch::jit::Node* tape, GradientSums& sums);

}  // namespace aten_recompute
