// The planner by itself: it decides which values of a forward to keep for a backward and which to
// recompute. It does not depend on LibTorch.
//
//   Problem problem = problem_from_json(text);                    // planner/model/problem.h
//   RetentionPlan unplanned = keep_what_is_read(problem);         // planner/model/retention_plan.h
//   PlanSearch search(problem, unplanned);                        // planner/search/search.h
//   if (auto plan = search.fastest(peak_bytes)) {
//     Simulator simulator(problem);                               // planner/model/simulator.h
//     Simulation cost = simulator.run(plan->retention);           // bytes, seconds
//     std::string text = plan_to_json(problem, plan->retention);  // planner/model/plan_file.h
//   }
//
// CMake: add_subdirectory(planner), then link aten_recompute_planner. It needs Boost.Graph,
// nlohmann_json, spdlog and threads.
#pragma once

#include "planner/addresses/place_blocks.h"
#include "planner/model/method_problem.h"
#include "planner/model/plan_file.h"
#include "planner/model/problem.h"
#include "planner/model/problem_builder.h"
#include "planner/model/retention_plan.h"
#include "planner/model/simulator.h"
#include "planner/search/budget.h"
#include "planner/search/search.h"
