#include "backend/planning/method_call.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace aten_recompute {
namespace {

// The last call on a thread that was watched. Its backward may be under way.
struct LastStep {
  std::weak_ptr<MethodPlans> plans;
  std::shared_ptr<const MethodPlan> plan;  // for the next call
  // Those that ran and take part in the plan.
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions;
  std::shared_ptr<StepWatch> watch;
  bool was_planned = false;
  bool had_other_sizes = false;
};

// The interpreter calls a region with its operands alone, and tells nobody when a backward ends. So
// regions find the method's call, and that its last step, by the thread.
struct ThreadCalls {
  MethodCall* innermost = nullptr;
  LastStep last_step;
};

ThreadCalls& this_thread() {
  static thread_local ThreadCalls calls;
  return calls;
}

// A checkpoint repeats its call inside a backward. Only the step around it is watched.
bool is_in_backward() {
  return torch::autograd::get_current_graph_task_id() >= 0;
}

}  // namespace

MethodCall::MethodCall(std::shared_ptr<MethodPlans> plans, const std::vector<c10::IValue>& inputs)
    : plans_(std::move(plans)), outer_(this_thread().innermost) {
  this_thread().innermost = this;
  if (plans_ == nullptr)
    return;
  settle_last_step();
  inputs_ = InputShapes(inputs);
  // A checkpoint around the call repeats it and expects it to keep the same tensors.
  is_hooked_ = at::SavedTensorDefaultHooks::get_hooks().has_value();
  plan_ = plans_->find(inputs_);
  if (plan_ == nullptr)
    dataflow_ = std::make_unique<RegionDataflowRecorder>(inputs);
  has_other_sizes_ = plan_ != nullptr && plan_->inputs != inputs_;
  const auto wants_watch = [&] {
    auto& count = has_other_sizes_ ? plan_->num_others_watched : plan_->num_watched;
    return plan_->measured_peak_bytes < 0 && count++ < kMaxWatchedSteps;
  };
  if ((plan_ == nullptr || wants_watch()) && may_watch())
    watch_ = StepWatch::start();
}

MethodCall::~MethodCall() {
  this_thread().innermost = outer_;
  if (watch_ != nullptr)
    watch_->stop();  // the call has failed
}

void MethodCall::settle_last_step() {
  auto& last_step = this_thread().last_step;
  if (is_in_backward() || last_step.watch == nullptr)
    return;
  last_step.watch->stop();
  const auto step = std::move(last_step);
  last_step = {};
  const auto plans = step.plans.lock();
  const auto memory = step.watch->memory();
  if (plans == nullptr || step.plan == nullptr)
    return;
  plans->learn(step.plan, step.compiled_regions, memory, step.was_planned, step.had_other_sizes);
}

bool MethodCall::may_watch() {
  return at::GradMode::is_enabled() && !at::SavedTensorDefaultHooks::get_hooks().has_value() &&
         !is_in_backward();
}

MethodCall* MethodCall::current() {
  auto* const call = this_thread().innermost;
  return call == nullptr || call->plans_ == nullptr ? nullptr : call;
}

std::shared_ptr<const CompiledRegion> MethodCall::planned(PlannedRun run) {
  const size_t position = runs_.size();
  runs_.push_back(std::move(run));
  if (plan_ == nullptr)
    return nullptr;
  deviates_ =
      deviates_ || position >= plan_->runs.size() || !plan_->runs[position].is_like(runs_.back());
  if (deviates_)
    return nullptr;
  has_other_sizes_ = has_other_sizes_ || plan_->runs[position].shapes != runs_.back().shapes;
  runs_.back().compiled_region = plan_->runs[position].compiled_region;
  return runs_.back().compiled_region;
}

void MethodCall::finish(const c10::IValue& result) {
  if (plans_ == nullptr || is_hooked_)
    return;
  if (watch_ != nullptr)
    watch_->end_call();
  const auto compiled_regions = planned_regions(runs_);
  std::shared_ptr<const MethodPlan> plan;
  if (outgrown_ && plan_ != nullptr)
    plans_->forget(plan_);
  else if (deviates_)
    plans_->note_deviation(inputs_, runs_);
  else if (plan_ == nullptr)
    plan = plans_->add({inputs_, std::move(runs_), *dataflow_, result, watch_.get()});
  else if (watch_ != nullptr)
    plan = plans_->measured(plan_, watch_->memory(), has_other_sizes_);
  if (watch_ == nullptr || plan == nullptr)
    return;
  this_thread().last_step = {plans_->weak_from_this(), plan,
                             compiled_regions,         std::move(watch_),
                             plan_ != nullptr,         has_other_sizes_};
}

}  // namespace aten_recompute
