#include "backend/method/step_problems.h"

#include <utility>

#include "planner/model/method_problem.h"
#include "planner/search/budget.h"

namespace aten_recompute {
namespace {

int64_t budget_of(const Options& options, const PlanMetrics& metrics) {
  const bool has_budget = options.memory_bytes.has_value() || options.memory_fraction.has_value();
  return has_budget ? budget_bytes(options, metrics.fraction_counts_from) : 0;
}

StepProblem joint_problem(const CompiledCall& call, const Options& options) {
  auto whole = std::make_shared<MethodProblem>(join(call.plan->linked, call.plan->kept_after));
  std::vector<const RetentionPlan*> planned;
  std::vector<const RetentionPlan*> unplanned;
  for (const auto& run : call.runs) {
    const auto* plan = run.compiled_region->plan();
    if (plan == nullptr)
      continue;
    planned.push_back(plan->retention.get());
    unplanned.push_back(plan->unplanned.get());
  }
  return {"",
          {whole, &whole->problem},
          join_retentions(*whole, call.plan->linked, planned),
          join_retentions(*whole, call.plan->linked, unplanned),
          budget_of(options, call.plan->metrics)};
}

}  // namespace

std::vector<StepProblem> step_problems(const CompiledCall& call, const Options& options) {
  std::vector<StepProblem> problems;
  if (call.plan != nullptr) {
    problems.push_back(joint_problem(call, options));
    return problems;
  }
  for (const auto& run : call.runs) {
    const auto* plan = run.compiled_region->plan();
    if (plan == nullptr)
      continue;
    problems.push_back({call.runs.size() == 1 ? "" : "region " + std::to_string(run.region),
                        plan->problem, *plan->retention, *plan->unplanned,
                        budget_of(options, plan->metrics)});
  }
  return problems;
}

}  // namespace aten_recompute
