// Has the strategy decide for a region.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "passes/frontend/path/method_memory.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/region_plan.h"
#include "passes/strategy/strategies.h"
#include "planner/model/schedule.h"
#include "planner/search/budget.h"

namespace aten_recompute {

struct PlanRequest {
  const JointGraph& joint;
  const Profile* profile;  // of `joint`; nullptr only where needs_profile(options) says no
  const Options& options;
  const std::vector<bool>& is_attribute;  // per region input: read from the module
  const SeenInCalls& seen;
  bool leanest = false;                 // under a budget: the smallest peak, whatever the budget is
  const std::vector<KnownPlan>& known;  // plans of this region for inputs of other sizes
  int64_t largest_unplanned_bytes = 0;  // of these, the largest peak without recomputation
  bool leaves_room = false;             // RegionInput::leaves_room
  bool only_known = false;              // RegionInput::only_known
  MethodMemory method_memory{};         // RegionInput::method_memory
};

// The decision, in terms of the joint graph.
struct PlannedGraph {
  GraphProblem problem;
  std::vector<Step> steps;         // for splice()
  std::optional<RegionPlan> plan;  // with a profile
  std::vector<Banned> banned;      // by min_cut: operators that may not run again
  UnmatchedWords unmatched;        // of strategies that match words
  double seconds = 0.0;            // that deciding took
};

// Has the strategy decide, and simulates the step. Throws UserError where a budget cannot be kept,
// std::invalid_argument where a plan file is for another problem.
PlannedGraph plan_region(const PlanRequest& request);

// Returns what plan_region() does for the same graph, node by node, with `retention` decided. What
// only a profile knows of the graph comes from `before`. `not_held` are results that nobody holds.
PlannedGraph follow_plan(const JointGraph& joint, const RegionPlan& before,
                         const RetentionPlan& retention, const std::vector<int32_t>& not_held = {});

// Returns the problem of a joint graph, before the strategy changes it. `caller` tells whether
// several calls are made before one backward, whose gradients then wait for each other.
GraphProblem problem_of(const JointGraph& joint, const Profile* profile, const Options& options,
                        const std::vector<bool>& is_attribute, const CallerAssumptions& caller);

// Returns the options for a region that cannot be profiled, and logs a warning that says why. A
// budget is kept as well as can be, by computing again all that can be.
Options without_profile(Options options, const std::string& why);

}  // namespace aten_recompute
