// Builds the backward of a region from gradient rules.
#pragma once

#include <memory>
#include <vector>

#include "ir/joint_graph.h"
#include "passes/autodiff/not_differentiable.h"

namespace aten_recompute {

// Returns the joint graph of `forward` and its backward. `forward` is a region's subgraph:
// straight-line, and control flow in it has no tensor outputs. It is copied, not changed.
//
// `requires_grad[i]`: input i needs a gradient. `vjp_defined[j]`: output j has a gradient; this is
// ignored for an output that does not require grad. A gradient that depends on no defined vjp is
// left out of the result, as eager leaves it undefined.
//
// Each operator's gradient comes from the first of: a rule that the program registered, a rule of
// rules/, the tape (runtime/tape.h). So every operator that eager can differentiate has one.
//
// The forward part of the result does not depend on `vjp_defined`: the n-th forward node is the
// same for every mask. Throws NotDifferentiable where a construct cannot be differentiated ahead of
// time (gradients through lists that are built in one place and indexed in another),
// std::logic_error for a rule that is wrong in itself.
JointGraph differentiate(const std::shared_ptr<torch::jit::Graph>& forward,
                         const std::vector<bool>& requires_grad,
                         const std::vector<bool>& vjp_defined);

}  // namespace aten_recompute
