// Lets gradients stay undefined where this turns out only while the backward runs.
//
// An operator on the tape need not use all of its operands: quantile(x, q) reads the shape of q
// only. Eager leaves the gradient of q undefined, and everything that is computed from it alone.
#pragma once

#include <cstddef>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Marks each tape_backward with the results that may be None (kMayBeUndefined), and each operator
// that reads such a result with the index of that operand (kSkipIfUndefined). If the operand is
// None, the operator does not run and its results are None, too. A result is zeros instead of None
// where an operator reads it together with another gradient, which may be defined.
//
//   g1, g2 = tape_backward(tape, g)        g1, g2 = tape_backward[1, 0](tape, g)
//   a = mul(g1, w)                  ==>    a = mul[skip_if_undefined=0](g1, w)
//   b = complex(g2, g)                     b = complex(g2, g)
//
// The first `num_vjps` inputs of the graph are gradients.
void allow_undefined_gradients(torch::jit::Graph& backward, size_t num_vjps);

}  // namespace aten_recompute
