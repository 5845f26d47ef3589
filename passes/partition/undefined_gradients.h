// Gradients that turn out undefined while the backward runs.
//
// An operator on the tape need not use all that it is given: quantile(x, q) reads q's shape, and
// eager leaves q's gradient undefined, and with it whatever would be computed from it alone.
#pragma once

#include <cstddef>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Says on each tape_backward which of its results may stay None (kMayBeUndefined), and on each
// operator that reads such a result which operand it is (kSkipIfUndefined): where it is None, the
// operator does not run and its results are None, too. A result stays a zero where something reads
// it together with another gradient, which may be defined.
//
//   g1, g2 = tape_backward(tape, g)        g1, g2 = tape_backward[1, 0](tape, g)
//   a = mul(g1, w)                  ==>    a = mul[skip_if_undefined=0](g1, w)
//   b = complex(g2, g)                     b = complex(g2, g)
//
// The first `num_vjps` inputs of the graph are gradients.
void allow_undefined_gradients(torch::jit::Graph& backward, size_t num_vjps);

}  // namespace aten_recompute
