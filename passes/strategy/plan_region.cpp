#include "passes/strategy/plan_region.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "ir/save_plan.h"
#include "passes/strategy/strategies.h"
#include "passes/strategy/tags.h"
#include "planner/model/plan_file.h"
#include "planner/model/simulator.h"

namespace aten_recompute {
namespace {

RetentionPlan leanest_of(const GraphProblem& problem, const std::vector<SavePlan>& plans) {
  Simulator simulator(problem.problem);
  std::optional<RetentionPlan> best;
  int64_t best_bytes = 0;
  for (const auto& plan : plans) {
    auto decisions = decisions_of(problem, plan);
    const auto bytes = simulator.run(decisions).peak_bytes;
    if (best && bytes >= best_bytes)
      continue;
    best = std::move(decisions);
    best_bytes = bytes;
  }
  return *best;
}

// For a region among others: what it keeps is alive while these run, its own peak is not. So
// keeping least is better than the smallest peak, unless that peak is much smaller.
RetentionPlan keep_least(const PlanRequest& request, const RetentionPlan& unplanned) {
  const auto& problem = request.problem;
  constexpr double kMuchLarger = 1.5;
  auto best = plan_leanest(problem.problem, unplanned, static_cast<size_t>(at::get_num_threads()));
  Simulator simulator(problem.problem);
  const auto leanest = simulator.run(best);
  auto saved_bytes = leanest.saved_bytes;
  const auto bytes = value_bytes(problem);
  auto options = request.options;
  options.strategy = StrategyKind::kAll;
  const PlanInput plan_input{request.joint, options, request.is_attribute, bytes};
  auto plans = segment_plans(plan_input);
  plans.push_back(make_plan(plan_input));
  for (const auto& plan : plans) {
    auto decisions = decisions_of(problem, plan);
    const auto simulation = simulator.run(decisions);
    if (simulation.saved_bytes >= saved_bytes ||
        static_cast<double>(simulation.peak_bytes) >
            kMuchLarger * static_cast<double>(leanest.peak_bytes))
      continue;
    saved_bytes = simulation.saved_bytes;
    best = std::move(decisions);
  }
  return best;
}

}  // namespace

void obey_tags(GraphProblem& graph) {
  const auto tags = value_tags(graph);
  if (std::all_of(tags.begin(), tags.end(), [](Tag tag) { return tag == Tag::kNone; }))
    return;
  for (const auto tag : tags) {
    graph.problem.must_save.push_back(tag == Tag::kMustSave);
    graph.problem.must_recompute.push_back(tag == Tag::kMustRecompute);
  }
}

RetentionPlan plan_region(const PlanRequest& request, std::vector<Banned>* banned) {
  const auto& [joint, problem, costs, options, is_attribute, leanest, known, largest] = request;
  if (options.strategy == StrategyKind::kBudget) {
    const auto unplanned = decisions_of(problem, save_everything(joint));
    const auto num_threads = static_cast<size_t>(at::get_num_threads());
    if (leanest)
      return keep_least(request, unplanned);
    const bool data_decide_sizes = costs && !costs->data_sizes.empty();
    return plan_budget(problem.problem, unplanned, options,
                       {.num_threads = num_threads,
                        .margin = data_decide_sizes ? kDataGrowth : 0.0,
                        .known = known,
                        .largest_unplanned_bytes = largest});
  }
  if (options.strategy == StrategyKind::kPlan)
    return plan_from_file(problem.problem, options.plan);
  if (options.strategy == StrategyKind::kMinCut) {
    auto cut = plan_min_cut(joint, problem, *costs, is_attribute, options.min_cut);
    if (log_enabled(LogTopic::kPlan, LogLevel::kInfo))
      log_info(LogTopic::kPlan, summary(cut, problem));
    *banned = std::move(cut.banned);
    return decisions_of(problem, cut.plan);
  }
  const auto bytes = value_bytes(problem);
  const PlanInput plan_input{joint, options, is_attribute, bytes};
  if (options.strategy == StrategyKind::kSegments)
    return leanest_of(problem, segment_plans(plan_input));
  return decisions_of(problem, make_plan(plan_input));
}

}  // namespace aten_recompute
