// A call of a method whose regions are planned together.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "backend/memory/input_shapes.h"
#include "backend/memory/step_watch.h"
#include "backend/planning/method_plans.h"
#include "backend/planning/region_dataflow.h"

namespace aten_recompute {

// A call that is being made on this thread. Its regions ask it what to run.
class MethodCall {
 public:
  // With nullptr for `plans`, each region plans for itself. `inputs` are those of the method.
  MethodCall(std::shared_ptr<MethodPlans> plans, const std::vector<c10::IValue>& inputs);
  ~MethodCall();
  MethodCall(const MethodCall&) = delete;
  MethodCall& operator=(const MethodCall&) = delete;

  // Evaluates the last step that was watched on this thread, unless a backward is running: its
  // method may be planned again.
  static void settle_last_step();

  // Returns whether a step that begins now can be compared with a plan: gradients are enabled, no
  // saved_tensors_hooks are on, and it is not part of a checkpoint's backward.
  static bool may_watch();

  // Returns the innermost call on this thread; nullptr if it has no plans, or there is no call.
  static MethodCall* current();

  // Notes a run that begins. Returns the compiled region that the plan has for it; nullptr if it
  // has none.
  std::shared_ptr<const CompiledRegion> planned(PlannedRun run);
  // Notes what ran where planned() returned nullptr.
  void ran(std::shared_ptr<const CompiledRegion> compiled_region) {
    runs_.back().compiled_region = std::move(compiled_region);
  }
  // Notes that the data of this call made a tensor larger than was planned for.
  void outgrew() { outgrown_ = true; }
  // Notes that the data of this call made smaller or larger tensors than those planned for.
  void note_other_sizes() { has_other_sizes_ = true; }
  // Returns nullptr unless the call is recorded.
  RegionDataflowRecorder* dataflow() { return dataflow_.get(); }
  bool has_plan() const { return plan_ != nullptr; }
  // Returns the watch of the step that the call begins; nullptr if it is not watched.
  std::shared_ptr<StepWatch> watch() const { return watch_; }

  // Notes that the method has returned `result`. Throws as MethodPlans::add() does.
  void finish(const c10::IValue& result);

 private:
  std::shared_ptr<MethodPlans> plans_;
  MethodCall* outer_;
  InputShapes inputs_;
  std::shared_ptr<const MethodPlan> plan_;
  std::unique_ptr<RegionDataflowRecorder> dataflow_;
  std::shared_ptr<StepWatch> watch_;  // if the call is recorded, or its plan not yet measured
  std::vector<PlannedRun> runs_;
  bool deviates_ = false;
  bool outgrown_ = false;
  bool has_other_sizes_ = false;
  bool is_hooked_ = false;  // saved_tensors_hooks are on, so nothing is planned anew
};

}  // namespace aten_recompute
