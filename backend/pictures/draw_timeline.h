// The memory of a step over its schedule, as a chart that graphviz draws: boxes at given places.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/pictures/draw_dot.h"
#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

struct Timeline {
  std::string title;
  const Problem* problem = nullptr;
  RetentionPlan planned;
  RetentionPlan unplanned;   // keeps what the backward reads, for comparison
  int64_t budget_bytes = 0;  // 0: there is none
};

// Returns one chart for each timeline, one below the other. The simulator walks the schedules, so
// what is drawn is what the planner predicts.
DotGraph draw_timelines(const std::vector<Timeline>& timelines);

}  // namespace aten_recompute
