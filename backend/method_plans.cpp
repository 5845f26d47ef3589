#include "backend/method_plans.h"

#include <ATen/Parallel.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>

#include "backend/log.h"
#include "backend/region.h"
#include "passes/plan/budget.h"
#include "passes/plan/joint_problem.h"
#include "passes/plan/plan_file.h"

namespace aten_recompute {
namespace {

thread_local MethodCall* current_call = nullptr;

// What a prediction may be off by, as a share of the peak.
constexpr double kTolerance = 0.03;

bool are_like(const std::vector<PlannedRun>& planned, const std::vector<PlannedRun>& runs) {
  return planned.size() == runs.size() &&
         std::equal(planned.begin(), planned.end(), runs.begin(),
                    [](const auto& a, const auto& b) { return a.is_like(b); });
}

Decisions pinned(const JointProblem& joint, const std::vector<RegionRun>& runs,
                 const std::string& text) {
  std::vector<const Problem*> problems;
  for (const auto& run : runs)
    problems.push_back(run.problem);
  const auto plans = plans_from_file(problems, text);
  std::vector<const Decisions*> decisions;
  for (const auto& plan : plans)
    decisions.push_back(&plan);
  return join_decisions(joint, runs, decisions);
}

PlanFigures joint_figures(const JointProblem& joint, const Decisions& decisions,
                          const Decisions& unplanned) {
  Simulator simulator(joint.problem);
  return figures_of(joint.problem, simulator.run(decisions), simulator.run(unplanned));
}

}  // namespace

std::shared_ptr<const MethodPlan> MethodPlans::find(const InputShapes& inputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (record_)
    return nullptr;
  auto found = std::find_if(plans_.begin(), plans_.end(),
                            [&](const auto& plan) { return plan->inputs == inputs; });
  if (found == plans_.end()) {
    found = std::find_if(plans_.begin(), plans_.end(),
                         [&](const auto& plan) { return plan->inputs.cover(inputs); });
  }
  if (found == plans_.end())
    return nullptr;
  plans_.splice(plans_.begin(), plans_, found);
  return plans_.front();
}

bool MethodPlans::use_again(const InputShapes& inputs, const std::vector<PlannedRun>& runs) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const auto& plan) {
    return plan->inputs.cover(inputs) && are_like(plan->runs, runs);
  });
  if (found == plans_.end())
    return false;
  plans_.splice(plans_.begin(), plans_, found);
  return true;
}

void MethodPlans::left(const InputShapes& inputs, const std::vector<PlannedRun>& runs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (use_again(inputs, runs))
    return;
  record_ = true;
  if (!said_that_left_) {
    log_info(method_ +
             ": a call ran other regions than those planned for, as lean as they can; its peak may "
             "exceed the budget. It is planned for when it comes next");
  }
  said_that_left_ = true;
}

void MethodPlans::add(const InputShapes& inputs, std::vector<PlannedRun> runs,
                      const CallLinks& links, const c10::IValue& result) {
  if (runs.empty())
    return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool again = record_;
  record_ = false;
  if (use_again(inputs, runs))
    return;
  // A region that runs under ordinary autograd has no variant, and one that cannot be profiled no
  // problem: neither has a part in the plan.
  std::vector<PlannedRun*> planned;
  for (auto& run : runs) {
    if (run.variant != nullptr && run.variant->graphs().problem != nullptr)
      planned.push_back(&run);
  }
  if (planned.empty())
    return;
  const auto start = std::chrono::steady_clock::now();
  const auto linked = links.runs(result, options_);
  const auto joint = join(linked);
  std::vector<const Decisions*> unplanned;
  for (const auto* run : planned)
    unplanned.push_back(run->variant->graphs().unplanned.get());
  const auto keep_all = join_decisions(joint, linked, unplanned);
  // That the budget cannot be kept turned out in the middle of a run: too late for an error.
  auto options = options_;
  options.leanest_if_unreachable = options.leanest_if_unreachable || outside_bytes_ > 0;
  const auto decisions =
      options_.strategy == StrategyKind::kPlan
          ? pinned(joint, linked, options_.plan)
          : plan_budget(joint.problem, keep_all, options,
                        {static_cast<size_t>(at::get_num_threads()), outside_bytes_});

  auto plan = std::make_shared<MethodPlan>();
  plan->inputs = inputs;
  plan->figures = joint_figures(joint, decisions, keep_all);
  plan->figures.outside_bytes = outside_bytes_;
  plan->figures.predicted_peak_bytes += outside_bytes_;
  plan->figures.unplanned_peak_bytes += outside_bytes_;
  plan->figures.predicted_saved_bytes += outside_bytes_;
  for (size_t i = 0; i < planned.size(); ++i) {
    auto& run = *planned[i];
    plan->figures.num_classes += run.variant->graphs().figures.num_classes;
    plan->figures.profile_seconds += run.variant->graphs().figures.profile_seconds;
    run.variant = run.region->compile_again(
        *run.variant, run.key, decisions_of_run(joint, i, *linked[i].problem, decisions));
  }
  plan->runs = std::move(runs);
  plan->figures.plan_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!plans_.empty() && !again)
    log_info(method_ + ": planned again, for larger inputs than before");
  plans_.push_front(plan);
  in_order_.push_back(std::move(plan));
  if (plans_.size() > kMaxPlans) {
    std::erase(in_order_, plans_.back());
    plans_.pop_back();
  }
}

void MethodPlans::measured(const std::shared_ptr<const MethodPlan>& plan, int64_t saved_bytes) {
  plan->measured_saved_bytes = saved_bytes;
  const auto more = saved_bytes - plan->figures.predicted_saved_bytes;
  if (more <=
      static_cast<int64_t>(kTolerance * static_cast<double>(plan->figures.predicted_peak_bytes)))
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    outside_bytes_ += more;
    if (!said_that_outside_) {
      log_warning(method_ + ": operators between the regions keep " +
                  std::to_string(outside_bytes_) +
                  " bytes for the backward that the plan did not know of, so that this call's peak "
                  "may exceed its budget. The next is planned with them");
    }
    said_that_outside_ = true;
  }
  forget(plan);
}

void MethodPlans::forget(const std::shared_ptr<const MethodPlan>& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  plans_.remove(plan);
  std::erase(in_order_, plan);
  record_ = true;
}

MethodPlans::List MethodPlans::plans() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return in_order_;
}

MethodCall::MethodCall(MethodPlans* plans, const std::vector<c10::IValue>& inputs)
    : plans_(plans), outer_(current_call) {
  current_call = this;
  if (plans_ == nullptr)
    return;
  inputs_ = InputShapes(inputs);
  // A checkpoint around the call makes it again and wants to see the same tensors kept.
  is_hooked_ = at::SavedTensorDefaultHooks::get_hooks().has_value();
  plan_ = plans_->find(inputs_);
  if (plan_ == nullptr)
    links_ = std::make_unique<CallLinks>(inputs);
  else if (plan_->measured_saved_bytes < 0 && !at::hasCallbacks() && !is_hooked_)
    watch_ = std::make_unique<MemoryWatch>();  // unless a profiler is there, which it would shadow
}

MethodCall::~MethodCall() {
  current_call = outer_;
}

MethodCall* MethodCall::current() {
  return current_call == nullptr || current_call->plans_ == nullptr ? nullptr : current_call;
}

std::shared_ptr<const RegionVariant> MethodCall::planned(PlannedRun run) {
  const size_t position = runs_.size();
  runs_.push_back(std::move(run));
  if (plan_ == nullptr)
    return nullptr;
  left_ = left_ || position >= plan_->runs.size() || !plan_->runs[position].is_like(runs_.back());
  if (left_)
    return nullptr;
  return plan_->runs[position].variant;
}

void MethodCall::finish(const c10::IValue& result) {
  if (plans_ == nullptr || is_hooked_)
    return;
  if (watch_ != nullptr && !left_ && !outgrown_)
    plans_->measured(plan_, watch_->alive_bytes());
  watch_.reset();
  if (outgrown_ && plan_ != nullptr)
    plans_->forget(plan_);
  else if (left_)
    plans_->left(inputs_, runs_);
  else if (links_ != nullptr)
    plans_->add(inputs_, std::move(runs_), *links_, result);
}

}  // namespace aten_recompute
