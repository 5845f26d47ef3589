// Runs operators without a gradient rule under ordinary autograd (runtime/tape.h).
#pragma once

#include "passes/autodiff/gradient_sums.h"

namespace aten_recompute {

// Replaces `node` by a tape_forward and returns that. Marks in `sums` those outputs of it that
// require grad.
//
//   y = op(x, n)          ==>    y, tape = tape_forward[op, requires_grad=[1, 0]](x, n)
torch::jit::Node* put_on_tape(torch::jit::Node* node, GradientSums& sums);

// Inserts a tape_backward and adds the gradients that it returns to `sums`. Does nothing where no
// output of `tape` has a gradient. `tape` is a result of put_on_tape().
void insert_tape_backward(torch::jit::Node* tape, GradientSums& sums);

}  // namespace aten_recompute
