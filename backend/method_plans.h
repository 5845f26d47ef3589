// One budget, or one pinned plan, for all regions of a method.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/call_links.h"
#include "backend/input_shapes.h"
#include "backend/options.h"
#include "backend/region_variant.h"
#include "passes/memory_watch.h"

namespace aten_recompute {

class Region;

// One run of a region within a call.
struct PlannedRun {
  const Region* region = nullptr;
  VariantKey key;
  InputShapes shapes;
  std::shared_ptr<const RegionVariant> variant;

  bool is_like(const PlannedRun& other) const {
    return region == other.region && key == other.key && shapes.cover(other.shapes);
  }
};

// What the regions of a call run, in order, planned together.
struct MethodPlan {
  InputShapes inputs;  // of the method
  std::vector<PlannedRun> runs;
  PlanFigures figures;
  // Alive when the first call under this plan had returned; -1: none has.
  mutable std::atomic<int64_t> measured_saved_bytes{-1};
};

// The plans of one specialisation of a method. What a later region needs is known only once it has
// run, so the first call (and the first with larger inputs) runs every region as lean as it can;
// at its end all regions are planned together, and from then on calls run that plan. Thread-safe; a
// backward that is under way keeps what it was compiled from.
class MethodPlans {
 public:
  using List = std::vector<std::shared_ptr<const MethodPlan>>;

  MethodPlans(std::string method, Options options)
      : method_(std::move(method)), options_(std::move(options)) {}

  // For a call with these inputs; nullptr: the call is to be recorded.
  std::shared_ptr<const MethodPlan> find(const InputShapes& inputs);
  // A call left the plan it was given: the next is recorded, unless there is a plan for its runs.
  void left(const InputShapes& inputs, const std::vector<PlannedRun>& runs);
  // Plans for what a call ran. Throws where the budget cannot be kept.
  void add(const InputShapes& inputs, std::vector<PlannedRun> runs, const CallLinks& links,
           const c10::IValue& result);

  // What a call under the plan left alive. More than was predicted is the work of operators between
  // the regions: the next call is planned with that in mind.
  void measured(const std::shared_ptr<const MethodPlan>& plan, int64_t saved_bytes);
  // What the plan was made for is smaller than what a call had.
  void forget(const std::shared_ptr<const MethodPlan>& plan);

  List plans() const;  // in the order of their making

 private:
  bool use_again(const InputShapes& inputs, const std::vector<PlannedRun>& runs);

  std::string method_;
  Options options_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const MethodPlan>> plans_;  // the last used first
  List in_order_;
  bool record_ = false;
  int64_t outside_bytes_ = 0;  // see measured()
  bool said_that_left_ = false;
  bool said_that_outside_ = false;
};

// A call that is being made on this thread. Its regions ask it what to run.
class MethodCall {
 public:
  // Without plans (nullptr): each region plans for itself.
  MethodCall(MethodPlans* plans, const std::vector<c10::IValue>& inputs);
  ~MethodCall();
  MethodCall(const MethodCall&) = delete;
  MethodCall& operator=(const MethodCall&) = delete;

  // Of this thread; nullptr where there are no plans.
  static MethodCall* current();

  // What the plan has for the run that comes now; nullptr: nothing.
  std::shared_ptr<const RegionVariant> planned(PlannedRun run);
  // What ran in its place.
  void ran(std::shared_ptr<const RegionVariant> variant) {
    runs_.back().variant = std::move(variant);
  }
  // In a region, data made something larger than was planned for.
  void outgrew() { outgrown_ = true; }
  // Where the call is recorded.
  CallLinks* links() { return links_.get(); }

  // The method has returned.
  void finish(const c10::IValue& result);

 private:
  MethodPlans* plans_;
  MethodCall* outer_;
  InputShapes inputs_;
  std::shared_ptr<const MethodPlan> plan_;
  std::unique_ptr<CallLinks> links_;
  std::unique_ptr<MemoryWatch> watch_;  // of the first call under a plan
  std::vector<PlannedRun> runs_;
  bool left_ = false;
  bool outgrown_ = false;
  bool is_hooked_ = false;  // by saved_tensors_hooks: nothing is planned anew
};

}  // namespace aten_recompute
