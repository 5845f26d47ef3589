// Builds the backward of a region from gradient rules.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/joint_graph.h"

namespace aten_recompute {

// The region has to run under ordinary autograd; what() says why.
struct NotDifferentiable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `forward` is a region's subgraph (straight-line; control flow in it has no tensor outputs). It is
// copied, not changed.
// `requires_grad[i]`: input i needs a gradient. `vjp_defined[j]`: output j has a gradient; an
// output that does not require grad is left out whatever this says. Gradients that depend on no
// defined vjp are left out of the result, as eager leaves them undefined.
//
// Each node's rule is the first of: a rule of passes/rules, the tape (runtime/tape.h), so every
// operator that eager can differentiate has one.
//
// The forward part of the result does not depend on `vjp_defined`: the n-th forward node is the
// same for every mask. Throws NotDifferentiable where a construct cannot be differentiated ahead of
// time (gradients through lists that are built in one place and indexed in another),
// std::logic_error for a rule that is wrong in itself.
JointGraph differentiate(const std::shared_ptr<torch::jit::Graph>& forward,
                         const std::vector<bool>& requires_grad,
                         const std::vector<bool>& vjp_defined);

}  // namespace aten_recompute
