// Calls the passes that compile a region, in order. Those that prepare a method come before them
// (passes/prepare_method.h), and some are called by the passes that they are parts of
// (docs/design.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ir/joint_graph.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/profile/region_profile.h"
#include "passes/region/choose_layout.h"
#include "passes/region/noop_elimination.h"
#include "passes/region/region_graphs.h"
#include "passes/strategy/graph_problem.h"

namespace aten_recompute {

// Differentiates, profiles, plans, and separates forward and backward. Throws NotProfiled where the
// region's forward raises on these inputs, NotDifferentiable, and what plan_region() throws.
RegionGraphs compile_region(const RegionInput& input);

// Compiles the same region under another plan. `before` was compiled from the same graph, with a
// profile, for the same inputs that require grad; nothing is profiled again. `not_held` are
// results, as values of the problem, that nobody holds, so that the plan may drop them.
RegionGraphs recompile_with_plan(const RegionInput& input, const RegionGraphs& before,
                                 const RetentionPlan& retention,
                                 const std::vector<int32_t>& not_held = {});

// A region's joint graph, what its nodes cost, and its planning problem, which is not solved.
struct RegionProfile {
  JointGraph joint;
  Profile costs;
  GraphProblem problem;
};

// Differentiates and profiles. The options decide which operators are fused, and the cost model.
// Throws NotProfiled and NotDifferentiable.
RegionProfile profile_region(const RegionInput& input);

// Returns whether the region's operators have a backward that is built ahead of time, whichever of
// its tensors require grad. Casts of autocast are not looked at.
bool has_backward(const std::shared_ptr<torch::jit::Graph>& region);

// Returns whether the only output of a straight-line graph has requires_grad, as it would as a
// region. `requires_grad[i]`: input i has it. Returns std::nullopt where there is no such region,
// and where an operator without a formula decides it (symbols::kOperatorGradient).
std::optional<bool> output_requires_grad(const std::shared_ptr<torch::jit::Graph>& graph,
                                         const std::vector<bool>& requires_grad);

// Does what compile_region() does last: brings the backward into the form that runs. For graphs
// that were made by hand.
void finish_backward(RegionGraphs& graphs);

}  // namespace aten_recompute
