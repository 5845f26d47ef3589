// One differentiable region of a method, at run time.
//
// region_run.cpp has a call: run(), choose() and compiled_for(), which find what is compiled for
// its inputs, and run_uncompiled(). region.cpp has the rest: keys, compiling, and replacing plans.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/custom_class.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/autograd/compiled_region.h"
#include "backend/memory/data_growth.h"
#include "backend/memory/input_shapes.h"
#include "backend/planning/method_plans.h"
#include "backend/planning/plan_cache.h"
#include "backend/planning/replan_policy.h"
#include "common/warn_once.h"
#include "passes/pipeline.h"

namespace aten_recompute {

// What the regions of a method share about a pinned plan.
struct PinnedPlan {
  // Some region was compiled by the plan, so it is a plan of this model. A call that it does not
  // cover (in evaluation, with frozen layers) is then no error.
  std::atomic<bool> matched{false};
  WarnOnce warn_of_unplanned_call;
};

class RegionCall;

// Returns which inputs of a region, a node that form_regions() made, are read from the module.
std::vector<bool> attribute_flags(const torch::jit::Node* region);

// Chooses the compiled region for each call's inputs, and runs it. Thread-safe.
class Region : public torch::CustomClassHolder, public PlannedRegion {
 public:
  // `graph` is the region's forward. `is_attribute[i]` says whether input i was read from the
  // module. With `is_one_of_several`, strategies budget and plan plan calls of the method as a
  // whole.
  Region(std::shared_ptr<torch::jit::Graph> graph, std::vector<bool> is_attribute, Options options,
         bool is_one_of_several,
         std::shared_ptr<PinnedPlan> pinned_plan = std::make_shared<PinnedPlan>(),
         MethodMemory method_memory = {});

  // Takes the region's inputs from the stack and leaves its outputs there, with their autograd
  // history. Compiles the region for each new SpecializationKey, and under strategy budget for
  // inputs that are larger than any before. A plan made for larger inputs keeps a budget in bytes
  // for smaller ones, too; a budget that is a fraction refers to the peak at the sizes planned for.
  // In a call that is planned as a whole (backend/planning/method_plans.h) the region runs by that
  // plan. Throws UserError where a budget or a pinned plan cannot be kept.
  void run(torch::jit::Stack& stack);

  // Runs the forward as it was scripted, without gradients or under ordinary autograd. The outputs
  // are pushed to the stack.
  void run_uncompiled(torch::jit::Stack& stack, std::vector<c10::IValue> inputs) const;

  // Returns the compiled regions that this region planned by itself, in the order of compiling.
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions() const;

  // Returns what these inputs are compiled for, with the options of the region and no plans that
  // are known. With `described`, they are meta tensors that stand for tensors on that device. The
  // inputs must outlive what is returned.
  RegionInput compilation_of(const std::vector<c10::IValue>& inputs,
                             std::optional<at::Device> described = {});
  // Returns, per input, whether it was read from the module.
  const std::vector<bool>& is_attribute() const { return is_attribute_; }

  std::shared_ptr<const CompiledRegion> compile_again(const CompiledRegion& before,
                                                      const SpecializationKey& key,
                                                      const RetentionPlan& retention,
                                                      HandedOver handed) const override;

 private:
  struct Planned {
    InputShapes shapes;
    std::shared_ptr<const CompiledRegion> compiled_region;  // may be nullptr; see compiled_for()
    size_t number = 0;                                      // in the order of compiling
    // The data of a call made larger tensors than planned for (DataSizes) and than there is room
    // for, so the plan is not used again.
    bool outgrown = false;

    friend const InputShapes& shapes_of(const std::shared_ptr<Planned>& plan) {
      return plan->shapes;
    }
  };

  // Plans for one SpecializationKey.
  struct Plans {
    PlanCache<std::shared_ptr<Planned>> planned;
    ReplanPolicy policy;
    SeenInCalls seen;  // what calls have shown that an earlier plan did not assume
    // Of that, what differs from plan to plan: the shapes that a plan was made for, and what its
    // calls have shown; the latest last.
    std::vector<std::pair<InputShapes, CallerAssumptions>> others;
    // Shapes whose plans were removed, and not yet made anew, because of what steps have shown.
    std::vector<InputShapes> replaced;
  };

  // Returns the key of these inputs, without `returned`. `described`: compilation_of().
  SpecializationKey key_of(const std::vector<c10::IValue>& inputs,
                           std::optional<at::Device> described = {}) const;
  // Returns whether a hook of the caller changes a gradient that the graph asks for itself. Such a
  // gradient is ordinary autograd's, which calls the hook.
  bool has_hooked_target(const std::vector<c10::IValue>& inputs) const;
  // Returns the forward without operators that return their argument, and with one name for inputs
  // that are the same tensor. A value's gradients are then added in the order of all its readers,
  // as in eager PyTorch. Where the key tells the device, the inputs' types do.
  std::shared_ptr<torch::jit::Graph> graph_for(const SpecializationKey& key) const;
  // Runs the region compiled for the key and these inputs, as run() does, and takes the inputs.
  // With `may_plan_again`, returns false instead where their data make larger tensors than there
  // is room for, as soon as this is known; the inputs are as before and the plan is outdated then.
  bool run_compiled(torch::jit::Stack& stack, std::vector<c10::IValue>& inputs,
                    const SpecializationKey& key, bool may_plan_again);
  struct Choice {
    std::shared_ptr<const CompiledRegion> compiled_region;  // nullptr as compiled_for() returns it
    bool is_for_larger = false;  // it was planned for other shapes, which cover those of the inputs
    bool may_start_again = true;  // ReplanPolicy::may_start_again()
  };
  // Returns what to run for these inputs, and tells the call if that is planned as a whole.
  Choice choose(const SpecializationKey& key, const std::vector<c10::IValue>& inputs);
  // Returns a compiled region that this region planned by itself; compiles one if none fits. A plan
  // for larger shapes fits unless `exact`. `leanest` asks for the smallest peak instead of the
  // budget. Returns nullptr if the region cannot be differentiated ahead of time, or raises on
  // these inputs. Throws UserError where a budget or a pinned plan cannot be kept.
  Choice compiled_for(const SpecializationKey& key, const std::vector<c10::IValue>& inputs,
                      const InputShapes& shapes, bool exact, bool leanest);
  // Returns whether the data of a call with these shapes made tensors larger than a budget allows.
  // `sizes` may end early, with what the call has decided so far. If so, the plan is not used
  // again, nor are others for such calls that are too small. Where none is left for them, the sizes
  // are noted for the next one.
  bool has_outgrown(const SpecializationKey& key, const CompiledRegion& compiled_region,
                    const InputShapes& shapes, const DataSizes& sizes);
  // Returns how far data that have decided on these sizes go beyond what the plan has memory for.
  DataGrowth growth_beyond(const CompiledRegion* compiled_region, const DataSizes& sizes) const;
  // Returns, of the plans that cover the shapes, the one for the largest data; nullptr where there
  // is none, or data decide no sizes.
  static const std::shared_ptr<Planned>* find_for_data(Plans& plans, const InputShapes& shapes);
  // Returns what has been seen in calls with these shapes.
  static SeenInCalls seen_in(const Plans& plans, const InputShapes& shapes);
  // Returns the region compiled for these inputs. Needs mutex_ to be held. Throws
  // NotDifferentiable, NotProfiled, std::runtime_error for a budget or std::invalid_argument for a
  // plan it cannot keep.
  std::shared_ptr<const CompiledRegion> compile(const SpecializationKey& key,
                                                const std::vector<c10::IValue>& inputs,
                                                const InputShapes& shapes, bool leanest,
                                                const Plans& plans) const;
  // Removes plans that are not to be used again, and returns them. Notes the caller's behavior in
  // `seen`.
  static std::vector<std::shared_ptr<Planned>> remove_outdated(Plans& plans);
  // Brings those back that data have outgrown, where the call was on another path of the method.
  static void bring_back_outgrown(Plans& plans,
                                  const std::vector<std::shared_ptr<Planned>>& removed);
  // Returns how many times the plan's peak a budget in bytes is; 1 where there is no such budget.
  double room_of(const CompiledRegion* compiled_region) const;
  // Logs why the region is compiled for this key and these shapes, if it was compiled before.
  // `is_outdated`: because of what a step has shown.
  void say_why_compiled(const SpecializationKey& key, const InputShapes& shapes, const Plans& plans,
                        bool is_outdated) const;
  // Has the call watched if its peak is to be compared with a plan. Returns the watch of a step
  // that runs this region alone, so that the call ends with the region's forward; nullptr
  // otherwise. `is_for_larger`: Choice.
  std::shared_ptr<StepWatch> watch(RegionCall& call, const std::vector<c10::IValue>& inputs,
                                   bool is_for_larger) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<bool> is_attribute_;
  std::vector<bool> decides_sizes_;  // per input: it is a number that does
  Options options_;
  bool is_one_of_several_;
  std::shared_ptr<PinnedPlan> pinned_plan_;
  MethodMemory method_memory_;  // empty with is_one_of_several_
  std::shared_ptr<const UserRules> rules_ = registered_rules();
  bool depends_on_device_;
  bool depends_on_autocast_;     // even where autocast is off around the region
  bool takes_gradients_;         // the method asks for gradients within it
  bool has_real_gradient_;       // one with symbols::kIsReal
  bool makes_leaves_;            // of which gradients are taken within the region
  std::vector<size_t> targets_;  // the inputs whose gradients the graph asks for
  Program uncompiled_;
  NoopElimination noop_elimination_;
  mutable std::mutex mutex_;
  std::map<SpecializationKey, Plans> compiled_regions_;
  size_t num_compiled_ = 0;
  const SpecializationKey* last_key_ = nullptr;  // that was compiled for; in compiled_regions_
  WarnOnce warn_of_larger_data_;
  std::shared_ptr<PeakDifference> difference_;  // for steps of this region alone
};

}  // namespace aten_recompute
