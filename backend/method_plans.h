// One budget, or one pinned plan, for all regions of a method.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/compiled_region.h"
#include "backend/input_shapes.h"
#include "backend/region_dataflow.h"
#include "backend/step_prediction.h"
#include "backend/step_watch.h"
#include "common/lru_cache.h"
#include "common/options.h"
#include "planner/model/joint_problem.h"
#include "planner/search/budget.h"

namespace aten_recompute {

class Region;

// One run of a region within a call.
struct PlannedRun {
  const Region* region = nullptr;
  SpecialisationKey key;
  InputShapes shapes;
  std::shared_ptr<const CompiledRegion> compiled_region;

  bool is_like(const PlannedRun& other) const {
    return region == other.region && key == other.key && shapes.cover(other.shapes);
  }
};

// What the regions of a call run, in order, planned together.
struct MethodPlan {
  InputShapes inputs;  // of the method
  std::vector<PlannedRun> runs;
  // Of the runs that have a part in the plan: how they hang together, and what is known of the
  // operators between them.
  std::vector<RegionRun> linked;
  int64_t kept_after = 0;  // by operators behind the last run
  PlanMetrics figures;
  // Of a step under this plan; -1: none has been watched.
  mutable std::atomic<int64_t> measured_saved_bytes{-1};  // when the call had returned
  mutable std::atomic<int64_t> measured_peak_bytes{-1};
  mutable std::atomic<size_t> num_watched{0};
};

// A call whose method has returned.
struct FinishedCall {
  InputShapes inputs;
  std::vector<PlannedRun> runs;
  const RegionDataflowRecorder& links;
  const c10::IValue& result;
  const StepWatch* watch;  // nullptr: nobody watched
};

// The plans of one specialisation of a method. What a later region needs is known only once it has
// run, so the first call (and the first with larger inputs) runs every region as lean as it can;
// at its end all regions are planned together, and from then on calls run that plan. Thread-safe; a
// backward that is under way keeps what it was compiled from.
class MethodPlans : public std::enable_shared_from_this<MethodPlans> {
 public:
  using List = std::vector<std::shared_ptr<const MethodPlan>>;

  MethodPlans(std::string method, Options options)
      : method_(std::move(method)),
        options_(std::move(options)),
        difference_(method_ + ": ", options_) {}

  // For a call with these inputs; nullptr: the call is to be recorded.
  std::shared_ptr<const MethodPlan> find(const InputShapes& inputs);
  // A call left the plan it was given: the next is recorded, unless there is a plan for its runs.
  void left(const InputShapes& inputs, const std::vector<PlannedRun>& runs);
  // Plans for what a call ran. Throws where the budget cannot be kept. Returns the new plan, or
  // nullptr: there is one already, or nothing to plan.
  std::shared_ptr<const MethodPlan> add(FinishedCall call);
  // A call under the plan has returned, the first. What it kept beyond the prediction is the work
  // of operators between the regions: the next call is planned with that in mind. Returns that
  // plan, or the given one.
  std::shared_ptr<const MethodPlan> measured(const std::shared_ptr<const MethodPlan>& plan,
                                             const StepMemory& memory);
  // The same when the backward of a call has run, too, that ran `compiled regions` and after which
  // `plan` was chosen for the next. `was_planned`: the call ran a plan.
  void learn(const std::shared_ptr<const MethodPlan>& plan,
             const std::vector<std::shared_ptr<const CompiledRegion>>& compiled_regions,
             const StepMemory& memory, bool was_planned);
  // What the plan was made for is smaller than what a call had.
  void forget(const std::shared_ptr<const MethodPlan>& plan);

  List plans() const;  // in the order of their making

 private:
  std::shared_ptr<const MethodPlan> plan(const std::shared_ptr<MethodPlan>& plan, bool is_late);
  std::vector<KnownPlan> known_plans(const JointProblem& joint, const MethodPlan& plan,
                                     std::list<RetentionPlan>& owned, bool is_late) const;
  std::shared_ptr<const MethodPlan> plan_again(const std::shared_ptr<const MethodPlan>& plan,
                                               std::vector<RegionRun> linked, int64_t kept_after);
  bool lower(const std::shared_ptr<const MethodPlan>& plan,
             const std::vector<const RetentionPlan*>& decisions, const StepMemory& memory);
  void warn_of_operators_between(int64_t predicted, int64_t measured, const char* what);
  void remove(const std::shared_ptr<const MethodPlan>& plan);
  bool use_again(const InputShapes& inputs, const std::vector<PlannedRun>& runs);

  std::string method_;
  Options options_;
  mutable std::mutex mutex_;
  LruCache<std::shared_ptr<const MethodPlan>> plans_{kMaxPlans};
  List in_order_;
  bool record_ = false;
  size_t num_left_ = 0;        // calls that left their plan and had no other, since one had
  size_t num_late_plans_ = 0;  // made by plan_again()
  size_t num_lowered_plans_ = 0;
  bool said_that_left_ = false;
  bool said_that_outside_ = false;
  PeakDifference difference_;
};

// A call that is being made on this thread. Its regions ask it what to run.
class MethodCall {
 public:
  // Without plans (nullptr): each region plans for itself.
  MethodCall(std::shared_ptr<MethodPlans> plans, const std::vector<c10::IValue>& inputs);
  ~MethodCall();
  MethodCall(const MethodCall&) = delete;
  MethodCall& operator=(const MethodCall&) = delete;

  // What was watched in the last step on this thread is made use of.
  static void settle_last_step();

  // A step that begins now can be held against a plan: it is no part of a checkpoint's backward, or
  // of one whose saved tensors go through hooks.
  static bool may_watch();

  // Of this thread; nullptr where there are no plans.
  static MethodCall* current();

  // What the plan has for the run that comes now; nullptr: nothing.
  std::shared_ptr<const CompiledRegion> planned(PlannedRun run);
  // What ran in its place.
  void ran(std::shared_ptr<const CompiledRegion> compiled_region) {
    runs_.back().compiled_region = std::move(compiled_region);
  }
  // In a region, data made something larger than was planned for.
  void outgrew() { outgrown_ = true; }
  // Where the call is recorded.
  RegionDataflowRecorder* links() { return links_.get(); }
  bool has_plan() const { return plan_ != nullptr; }
  // Of the step that the call begins; nullptr: nobody watches it.
  std::shared_ptr<StepWatch> watch() const { return watch_; }

  // The method has returned.
  void finish(const c10::IValue& result);

 private:
  std::shared_ptr<MethodPlans> plans_;
  MethodCall* outer_;
  InputShapes inputs_;
  std::shared_ptr<const MethodPlan> plan_;
  std::unique_ptr<RegionDataflowRecorder> links_;
  std::shared_ptr<StepWatch> watch_;  // where the call is recorded, or the first under its plan
  std::vector<PlannedRun> runs_;
  bool left_ = false;
  bool outgrown_ = false;
  bool is_hooked_ = false;  // by saved_tensors_hooks: nothing is planned anew
};

}  // namespace aten_recompute
