#include "backend/planning/method_plans.h"

#include <ATen/Parallel.h>
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/memory/step_prediction.h"
#include "common/log.h"
#include "common/strategy_traits.h"
#include "planner/model/method_problem.h"
#include "planner/model/plan_file.h"
#include "planner/search/budget.h"
#include "runtime/arena/system_memory.h"

namespace aten_recompute {
namespace {

bool are_like(const std::vector<PlannedRun>& planned, const std::vector<PlannedRun>& runs) {
  return planned.size() == runs.size() &&
         std::equal(planned.begin(), planned.end(), runs.begin(),
                    [](const auto& a, const auto& b) { return a.is_like(b); });
}

bool is_outdated(const PlannedRun& run) {
  return run.compiled_region != nullptr && run.compiled_region->is_outdated();
}

RetentionPlan pinned(const MethodProblem& whole, const std::vector<RegionRun>& runs,
                     const std::string& text) {
  std::vector<const Problem*> problems;
  for (const auto& run : runs)
    problems.push_back(run.problem);
  const auto plans = plans_from_file(problems, text);
  std::vector<const RetentionPlan*> retention;
  for (const auto& plan : plans)
    retention.push_back(&plan);
  return join_retentions(whole, runs, retention);
}

// A run takes no part in a plan if its region runs under ordinary autograd (it then has no compiled
// region) or cannot be profiled (it then has no problem).
bool has_part_in_plan(const PlannedRun& run) {
  return run.compiled_region != nullptr && run.compiled_region->plan() != nullptr;
}

std::vector<const RetentionPlan*> retentions_of(
    const std::vector<std::shared_ptr<const CompiledRegion>>& compiled_regions) {
  std::vector<const RetentionPlan*> retention;
  for (const auto& compiled_region : compiled_regions)
    retention.push_back(compiled_region->plan()->retention.get());
  return retention;
}

std::vector<size_t> outputs_for_the_loss(const RegionRun& run) {
  std::vector<size_t> outputs;
  for (size_t k = 0; k < run.incoming.size(); ++k) {
    if (run.incoming[k].from_loss && run.incoming[k].gradients.empty())
      outputs.push_back(k);
  }
  return outputs;
}

bool is_same_way(const std::vector<PlannedRun>& a, const std::vector<PlannedRun>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.region == y.region && x.key == y.key && has_part_in_plan(x) == has_part_in_plan(y);
  });
}

bool contains(const std::vector<int32_t>& values, int32_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns what run `run` does with handed values. `again` is what made_again() returned.
HandedOver handed_over(const std::vector<RegionRun>& runs,
                       const std::vector<std::vector<int32_t>>& again, size_t run,
                       const CompiledRegion& compiled_region) {
  HandedOver handed;
  handed.results = handed_results(runs, run);
  const auto& inputs = compiled_region.plan()->boundary.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] >= 0 && contains(again[run], inputs[i]))
      handed.made_again.push_back(i);
  }
  for (size_t other = run + 1; other < runs.size(); ++other) {
    for (const auto& given : runs[other].given) {
      if (given.from.run == static_cast<int32_t>(run) && contains(again[other], given.value))
        handed.makes_again = true;
    }
  }
  return handed;
}

// Has `note` see the runs as they are while nothing is made again: so run calls without a plan for
// the method, whose regions keep all their results that they read.
void note_without_plan(std::vector<RegionRun>& runs, const auto& note) {
  std::vector<bool> flags;
  for (auto& run : runs) {
    for (auto& given : run.given)
      flags.push_back(std::exchange(given.may_be_made_again, false));
  }
  note();
  auto flag = flags.begin();
  for (auto& run : runs) {
    for (auto& given : run.given)
      given.may_be_made_again = *flag++;
  }
}

PlanMetrics metrics_of_method(const MethodProblem& whole, const RetentionPlan& retention,
                              const RetentionPlan& unplanned) {
  Simulator simulator(whole.problem);
  return metrics_of(simulator, retention, unplanned);
}

}  // namespace

std::vector<std::shared_ptr<const CompiledRegion>> planned_regions(
    const std::vector<PlannedRun>& runs) {
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions;
  for (const auto& run : runs) {
    if (has_part_in_plan(run))
      compiled_regions.push_back(run.compiled_region);
  }
  return compiled_regions;
}

std::shared_ptr<const MethodPlan> MethodPlans::find(const InputShapes& inputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (record_)
    return nullptr;
  const auto* found = plans_.find(inputs);
  if (found == nullptr)
    return nullptr;
  auto plan = *found;
  if (std::any_of(plan->runs.begin(), plan->runs.end(), is_outdated)) {
    remove(plan);
    return nullptr;
  }
  return plan;
}

bool MethodPlans::use_again(const InputShapes& inputs, const std::vector<PlannedRun>& runs) {
  const auto* found = plans_.find_if(
      [&](const auto& plan) { return plan->inputs.cover(inputs) && are_like(plan->runs, runs); });
  if (found == nullptr)
    return false;
  num_deviations_ = 0;
  return true;
}

void MethodPlans::note_deviation(const InputShapes& inputs, const std::vector<PlannedRun>& runs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (use_again(inputs, runs))
    return;
  // Plans are of little use where every call takes another way through the method. So such calls
  // are recorded at growing intervals: after 1, 2, 4, 8 of them.
  ++num_deviations_;
  record_ = (num_deviations_ & (num_deviations_ - 1)) == 0;
  warn_of_deviation_(
      LogTopic::kSpecialize,
      method_ +
          ": a call ran other regions than those planned for, with as little memory as "
          "possible; its peak may exceed memory_budget. It is planned for when it occurs "
          "again");
}

std::shared_ptr<const MethodPlan> MethodPlans::add(FinishedCall call) {
  if (call.runs.empty())
    return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool again = record_;
  record_ = false;
  if (use_again(call.inputs, call.runs))
    return nullptr;
  const auto unfinished = std::make_shared<MethodPlan>();
  unfinished->inputs = std::move(call.inputs);
  unfinished->runs = std::move(call.runs);
  unfinished->linked = call.dataflow.runs(call.result, options_);
  if (unfinished->linked.empty())
    return nullptr;
  if (call.watch != nullptr) {
    note_without_plan(unfinished->linked, [&] {
      note_kept_between(unfinished->linked, unfinished->kept_after,
                        retentions_of(planned_regions(unfinished->runs)), call.watch->memory());
    });
  }
  if (!plans_.empty() && !again)
    log_info(LogTopic::kSpecialize,
             method_ + " is planned again, for larger inputs: " +
                 plans_.in_order().back()->inputs.difference(unfinished->inputs, {}));
  return plan(unfinished, /*is_late=*/false);
}

std::shared_ptr<const MethodPlan> MethodPlans::plan(const std::shared_ptr<MethodPlan>& plan,
                                                    bool is_late) {
  const auto start = std::chrono::steady_clock::now();
  const auto whole = join(plan->linked, plan->kept_after);
  std::vector<PlannedRun*> planned;
  std::vector<const RetentionPlan*> unplanned;
  for (auto& run : plan->runs) {
    if (!has_part_in_plan(run))
      continue;
    planned.push_back(&run);
    unplanned.push_back(run.compiled_region->plan()->unplanned.get());
  }
  auto keep_all = join_retentions(whole, plan->linked, unplanned);
  // Alone, a region does not decide about its results and about what it is given.
  for (size_t i = 0; i < plan->linked.size(); ++i) {
    for (auto value : handed_results(plan->linked, i))
      keep_all.set_always(whole.values[i][value], false);
    for (const auto& given : plan->linked[i].given)
      keep_all.set_always(whole.values[i][given.value], false);
  }
  std::list<RetentionPlan> known;
  const auto outside = outside_bytes(plan->linked, plan->kept_after);
  if (is_late)
    policy_.note_replacement();
  const auto options = policy_.for_next_plan(options_);
  const auto retention =
      traits_of(options_).follows_plan_file
          ? pinned(whole, plan->linked, options_.plan)
          : plan_budget(whole.problem, keep_all, options,
                        {.num_threads = static_cast<size_t>(at::get_num_threads()),
                         .outside_bytes = outside,
                         .known = known_plans(whole, *plan, known, is_late),
                         .largest_unplanned_bytes = policy_.largest_unplanned_bytes()});

  plan->metrics = metrics_of_method(whole, retention, keep_all);
  plan->metrics.fraction_counts_from = fraction_counts_from(
      options_, plan->metrics.unplanned_peak_bytes, policy_.largest_unplanned_bytes());
  policy_.note_plan(plan->metrics.unplanned_peak_bytes);
  plan->metrics.outside_bytes = outside;
  const auto again = made_again(whole, plan->linked, retention);
  auto settled = retention;  // drops nothing that no region makes again
  for (size_t i = 0; i < plan->linked.size(); ++i) {
    for (const auto& given : plan->linked[i].given)
      settled.set(whole.values[i][given.value], 0, contains(again[i], given.value));
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    auto& run = *planned[i];
    run.compiled_region->caller()->count_only(outputs_for_the_loss(plan->linked[i]));
    plan->metrics.num_classes += run.compiled_region->plan()->metrics.num_classes;
    plan->metrics.profile_seconds += run.compiled_region->plan()->metrics.profile_seconds;
    run.compiled_region =
        run.region->compile_again(*run.compiled_region, run.key,
                                  retention_of_run(whole, i, *plan->linked[i].problem, settled),
                                  handed_over(plan->linked, again, i, *run.compiled_region));
  }
  plan->metrics.plan_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (log_enabled(LogTopic::kPlan, LogLevel::kInfo))
    log_info(LogTopic::kPlan, method_ + " is planned as a whole, with " +
                                  std::to_string(planned.size()) + " runs of regions" +
                                  describe(plan->metrics));
  give_back_free_heap();  // of what the search took
  plans_.insert(plan);
  return plan;
}

std::vector<KnownPlan> MethodPlans::known_plans(const MethodProblem& whole, const MethodPlan& plan,
                                                std::list<RetentionPlan>& owned,
                                                bool is_late) const {
  std::vector<KnownPlan> known;
  for (const auto& other : plans_.in_order()) {
    if (is_late || !is_same_way(other->runs, plan.runs))
      continue;
    owned.push_back(
        join_retentions(whole, plan.linked, retentions_of(planned_regions(other->runs))));
    known.push_back({&owned.back(), other->metrics.unplanned_peak_bytes});
  }
  return known;
}

std::shared_ptr<const MethodPlan> MethodPlans::plan_again(
    const std::shared_ptr<const MethodPlan>& plan, std::vector<RegionRun> linked,
    int64_t kept_after) {
  if (!policy_.may_replace())
    return plan;
  remove(plan);
  const auto unfinished = std::make_shared<MethodPlan>();
  unfinished->inputs = plan->inputs;
  unfinished->runs = plan->runs;
  unfinished->linked = std::move(linked);
  unfinished->kept_after = kept_after;
  return this->plan(unfinished, /*is_late=*/true);
}

void MethodPlans::warn_of_operators_between(int64_t predicted, int64_t measured, const char* what) {
  warn_of_operators_(
      LogTopic::kMemory,
      method_ + ": " + what + " took " + std::to_string(measured) + " bytes where " +
          std::to_string(predicted) +
          " were predicted, because of operators between the regions, so that this step's peak "
          "may exceed its budget. The next step is planned with the measured figures");
}

std::shared_ptr<const MethodPlan> MethodPlans::measured(
    const std::shared_ptr<const MethodPlan>& plan, const StepMemory& memory, bool had_other_sizes) {
  if (!had_other_sizes)
    plan->measured_saved_bytes = memory.saved;
  const auto more = memory.saved - plan->metrics.predicted_saved_bytes;
  const auto peak = plan->metrics.predicted_peak_bytes;
  const auto budget = budget_bytes(options_, plan->metrics.fraction_counts_from);
  if (!is_too_low(peak, peak + more, budget))
    return plan;
  const std::lock_guard<std::mutex> lock(mutex_);
  warn_of_operators_between(plan->metrics.predicted_saved_bytes, memory.saved,
                            "what is kept for the backward");
  auto linked = plan->linked;
  auto kept_after = plan->kept_after;
  note_kept_between(linked, kept_after, retentions_of(planned_regions(plan->runs)), memory);
  return plan_again(plan, std::move(linked), kept_after);
}

void MethodPlans::learn(const std::shared_ptr<const MethodPlan>& plan,
                        const std::vector<std::shared_ptr<const CompiledRegion>>& compiled_regions,
                        const StepMemory& memory, bool was_planned, bool had_other_sizes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto& known = plans_.in_order();
  // A call that returns early runs fewer regions than the plan has, and cannot be compared with it.
  if (memory.backward.empty() || compiled_regions.size() != plan->linked.size() ||
      std::find(known.begin(), known.end(), plan) == known.end())
    return;
  const auto by = retentions_of(compiled_regions);
  auto linked = plan->linked;
  // New gradients stay allocated and later steps add to them, so the plan need not allow for their
  // memory.
  const auto note = [&] {
    if (!options_.accumulate || memory.num_new_gradients == 0)
      note_beyond_in_backward(linked, plan->kept_after, by, memory);
    note_loss(linked, plan->kept_after, by, memory);
  };
  if (was_planned)
    note();
  else
    note_without_plan(linked, note);
  const auto next = retentions_of(planned_regions(plan->runs));
  const auto peak = predict(linked, plan->kept_after, next).peak_bytes;
  const auto predicted = plan->metrics.predicted_peak_bytes;
  const auto budget = budget_bytes(options_, plan->metrics.fraction_counts_from);
  if (is_too_low(predicted, peak, budget)) {
    if (was_planned)
      warn_of_operators_between(predicted, peak, "the backward");
    plan_again(plan, std::move(linked), plan->kept_after);
  } else if (was_planned && !had_other_sizes && is_like_plan(memory, options_.accumulate) &&
             StepWatch::sees_all_memory()) {
    plan->measured_peak_bytes = memory.peak;
    if (is_too_high(predicted, memory.peak) && replan_with_less(plan, by, memory))
      return;
    difference_.say(plan->metrics, memory);
  }
}

bool MethodPlans::replan_with_less(const std::shared_ptr<const MethodPlan>& plan,
                                   const std::vector<const RetentionPlan*>& retention,
                                   const StepMemory& memory) {
  auto linked = plan->linked;
  int64_t kept_after = 0;
  for (auto& run : linked) {
    run.kept_before.reset();
    run.beyond_in_backward.reset();
    run.beyond_after_backward = 0;
  }
  note_kept_between(linked, kept_after, retention, memory);
  note_beyond_in_backward(linked, kept_after, retention, memory);
  if (!is_too_high(plan->metrics.predicted_peak_bytes,
                   predict(linked, kept_after, retention).peak_bytes))
    return false;
  if (!policy_.may_replace_with_less())
    return false;
  plan_again(plan, std::move(linked), kept_after);
  return true;
}

void MethodPlans::remove(const std::shared_ptr<const MethodPlan>& plan) {
  plans_.erase_if([&](const auto& each) { return each == plan; });
}

void MethodPlans::forget(const std::shared_ptr<const MethodPlan>& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  remove(plan);
  record_ = true;
}

MethodPlans::List MethodPlans::plans() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return plans_.in_order();
}

}  // namespace aten_recompute
