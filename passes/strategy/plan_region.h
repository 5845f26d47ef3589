// Has the strategy decide for a region.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "passes/profile/profile.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/min_cut.h"
#include "planner/model/retention_plan.h"
#include "planner/search/budget.h"

namespace aten_recompute {

struct PlanRequest {
  const JointGraph& joint;
  const GraphProblem& problem;          // of `joint`
  const std::optional<Profile>& costs;  // where needs_profile() says that the strategy needs one
  const Options& options;
  const std::vector<bool>& is_attribute;  // per region input: read from the module
  bool leanest = false;                   // strategy budget: the smallest peak, whatever the budget
  const std::vector<KnownPlan>& known;    // plans of this region for inputs of other sizes
  int64_t largest_unplanned_bytes = 0;    // of these, the largest peak without recomputation
};

// Writes what must_save and must_recompute ask for into the problem.
void obey_tags(GraphProblem& graph);

// Returns the strategy's plan. min_cut appends to `banned` what may not run again. Throws UserError
// where a budget cannot be kept, std::invalid_argument where a plan file is for another problem.
RetentionPlan plan_region(const PlanRequest& request, std::vector<Banned>* banned);

}  // namespace aten_recompute
