// Strategy `budget`: the fastest plan whose simulated peak fits, or the leanest whose time does.
#pragma once

#include <cstdint>
#include <vector>

#include "common/options.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

// A plan of the same nodes and values for inputs of other sizes.
struct KnownPlan {
  const RetentionPlan* decisions = nullptr;
  int64_t unplanned_peak_bytes = 0;  // there
};

// `outside_bytes`: what in the problem is the need of operators outside of the regions, for the
// message. `known`: the fastest of these plans that fits is taken, if the sizes are not too far
// apart, and nothing is searched for, which takes as long as several steps.
struct BudgetLimits {
  size_t num_threads = 1;
  int64_t outside_bytes = 0;
  std::vector<KnownPlan> known{};
};
// What the budget is in bytes, where keeping everything has this peak; the largest number without
// one.
int64_t budget_bytes(const Options& options, int64_t unplanned_peak_bytes);

// `unplanned` keeps what the backward reads: what a fraction is a fraction of, and where the search
// starts. Throws std::runtime_error where no plan is found that fits; the message names the
// smallest peak that can be reached; with Options::leanest_if_unreachable that plan is returned and
// a warning says so. The number of threads changes nothing about the plan.
RetentionPlan plan_budget(const Problem& problem, const RetentionPlan& unplanned,
                          const Options& options, const BudgetLimits& limits = {});

// The smallest peak that a short search finds.
RetentionPlan plan_leanest(const Problem& problem, const RetentionPlan& unplanned,
                           size_t num_threads = 1);

}  // namespace aten_recompute
