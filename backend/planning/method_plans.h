// Plans all regions of a method together, under one budget or by one pinned plan.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/autograd/compiled_region.h"
#include "backend/memory/input_shapes.h"
#include "backend/memory/step_prediction.h"
#include "backend/memory/step_watch.h"
#include "backend/planning/plan_cache.h"
#include "backend/planning/region_dataflow.h"
#include "backend/planning/replan_policy.h"
#include "common/options.h"
#include "common/warn_once.h"
#include "planner/model/method_problem.h"
#include "planner/search/budget.h"

namespace aten_recompute {

// A region as the plans of its method see it.
class PlannedRegion {
 public:
  virtual ~PlannedRegion() = default;
  // Returns `before`, which has this key and a profile, compiled under another plan.
  virtual std::shared_ptr<const CompiledRegion> compile_again(const CompiledRegion& before,
                                                              const SpecializationKey& key,
                                                              const RetentionPlan& retention,
                                                              HandedOver handed) const = 0;
};

// One run of a region within a call.
struct PlannedRun {
  const PlannedRegion* region = nullptr;
  SpecializationKey key;
  InputShapes shapes;
  std::shared_ptr<const CompiledRegion> compiled_region;

  // Returns whether what this run was planned for serves `other`: both have the same region and
  // key, and the shapes here cover those of `other`.
  bool is_like(const PlannedRun& other) const {
    return region == other.region && key == other.key && shapes.cover(other.shapes);
  }
};

// The runs of all regions in one kind of call, planned together.
struct MethodPlan {
  InputShapes inputs;            // of the method
  std::vector<PlannedRun> runs;  // in the order of the call
  // The runs that take part in the plan: how values and gradients flow between them, and what is
  // known of the operators between them.
  std::vector<RegionRun> linked;
  int64_t kept_after = 0;  // bytes that operators after the last run keep
  PlanMetrics metrics;
  // Bytes of a step under this plan; -1 where none has been watched.
  mutable std::atomic<int64_t> measured_saved_bytes{-1};  // allocated when the call returned
  mutable std::atomic<int64_t> measured_peak_bytes{-1};
  mutable std::atomic<size_t> num_watched{0};
  mutable std::atomic<size_t> num_others_watched{0};
};

inline const InputShapes& shapes_of(const std::shared_ptr<const MethodPlan>& plan) {
  return plan->inputs;
}

// Returns the compiled regions of the runs that take part in a plan.
std::vector<std::shared_ptr<const CompiledRegion>> planned_regions(
    const std::vector<PlannedRun>& runs);

// A call whose method has returned.
struct FinishedCall {
  InputShapes inputs;
  std::vector<PlannedRun> runs;
  const RegionDataflowRecorder& dataflow;
  const c10::IValue& result;
  const StepWatch* watch;  // nullptr if the call was not watched
};

// The plans of one specialization of a method. How much memory a later region needs is known only
// after it has run. So the first call, and the first with larger inputs, runs every region with as
// little memory as possible and is recorded. When it returns, all regions are planned together, and
// later calls run that plan. Thread-safe; a backward under way keeps its compiled region alive.
class MethodPlans : public std::enable_shared_from_this<MethodPlans> {
 public:
  using List = std::vector<std::shared_ptr<const MethodPlan>>;

  MethodPlans(std::string method, Options options)
      : method_(std::move(method)),
        options_(std::move(options)),
        difference_(method_ + ": ", options_) {}

  // Returns the plan for a call with these inputs; nullptr if the call is to be recorded.
  std::shared_ptr<const MethodPlan> find(const InputShapes& inputs);
  // Notes that a call ran `runs` instead of what its plan has. If no plan fits these runs either,
  // a later call is recorded.
  void note_deviation(const InputShapes& inputs, const std::vector<PlannedRun>& runs);
  // Plans for the runs of a recorded call. Returns the new plan, or nullptr if there is one already
  // or there is nothing to plan. Throws std::runtime_error where the budget cannot be kept, and
  // std::invalid_argument where a pinned plan does not fit.
  std::shared_ptr<const MethodPlan> add(FinishedCall call);
  // Notes the memory of a call under `plan` that has returned. What it kept beyond the prediction
  // is attributed to operators between the regions. Returns a new plan that allows for that, or
  // `plan` if the prediction was close enough. `had_other_sizes`: learn().
  std::shared_ptr<const MethodPlan> measured(const std::shared_ptr<const MethodPlan>& plan,
                                             const StepMemory& memory, bool had_other_sizes);
  // Notes the memory of a step whose call ran `compiled_regions` and whose backward has run, too.
  // Replaces `plan`, which was chosen for the next call, if its prediction is off. `was_planned`
  // says that the call ran a plan, `had_other_sizes` that its tensors had other sizes than those
  // planned for, so that only a peak that is too large says something.
  void learn(const std::shared_ptr<const MethodPlan>& plan,
             const std::vector<std::shared_ptr<const CompiledRegion>>& compiled_regions,
             const StepMemory& memory, bool was_planned, bool had_other_sizes);
  // Drops the plan, because a call had larger tensors than it was made for.
  void forget(const std::shared_ptr<const MethodPlan>& plan);

  List plans() const;  // in the order in which they were made

 private:
  // These need mutex_ to be held.

  // Finishes a plan whose inputs, runs and dataflow are known, and returns it. `is_late` says that
  // training is under way: it is then too late for an error, so a budget that cannot be kept gives
  // the plan with the smallest peak. Throws as add() does.
  std::shared_ptr<const MethodPlan> plan(const std::shared_ptr<MethodPlan>& plan, bool is_late);
  // Returns the plans for the same sequence of runs with inputs of other sizes. `owned` keeps their
  // joint plans alive. Returns none for a late plan, because the known ones predicted wrongly.
  std::vector<KnownPlan> known_plans(const MethodProblem& whole, const MethodPlan& plan,
                                     std::list<RetentionPlan>& owned, bool is_late) const;
  // Replaces `plan` by one with another dataflow, and returns it; returns `plan` after
  // kMaxLatePlans.
  std::shared_ptr<const MethodPlan> plan_again(const std::shared_ptr<const MethodPlan>& plan,
                                               std::vector<RegionRun> linked, int64_t kept_after);
  // Replaces `plan` by one that assumes only what this step showed of operators between the
  // regions, not what steps under earlier plans did. Returns false if the prediction would not
  // change.
  bool replan_with_less(const std::shared_ptr<const MethodPlan>& plan,
                        const std::vector<const RetentionPlan*>& retention,
                        const StepMemory& memory);
  // Warns once that `what` took more bytes than predicted.
  void warn_of_operators_between(int64_t predicted, int64_t measured, const char* what);
  void remove(const std::shared_ptr<const MethodPlan>& plan);
  // Makes the plan that covers these runs the most recently used. Returns false if there is none.
  bool use_again(const InputShapes& inputs, const std::vector<PlannedRun>& runs);

  std::string method_;
  Options options_;
  mutable std::mutex mutex_;
  PlanCache<std::shared_ptr<const MethodPlan>> plans_;
  ReplanPolicy policy_;
  bool record_ = false;  // the next call is to be recorded
  size_t num_deviations_ =
      0;  // calls that note_deviation() found no plan for, since it last found one
  WarnOnce warn_of_deviation_;
  WarnOnce warn_of_operators_;
  PeakDifference difference_;
};

}  // namespace aten_recompute
