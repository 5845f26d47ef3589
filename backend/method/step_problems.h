// The planning problems of the last training step, with the plans that it follows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/method/specialization.h"
#include "common/options.h"
#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

struct StepProblem {
  std::string region;  // "region 2"; "" where it is the whole step
  std::shared_ptr<const Problem> problem;
  RetentionPlan planned;
  RetentionPlan unplanned;   // keeps what the backward reads, for comparison
  int64_t budget_bytes = 0;  // 0: there is none
};

// Returns one problem for all regions of the call where they were planned together, and otherwise
// one for each region that has a profile. `options` are those of the method.
std::vector<StepProblem> step_problems(const CompiledCall& call, const Options& options);

}  // namespace aten_recompute
