// One differentiable region at run time.
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

#include "backend/compiled_region.h"
#include "backend/input_shapes.h"
#include "common/lru_cache.h"
#include "passes/pipeline.h"

namespace aten_recompute {

// Of a pinned plan: some region of the method was compiled by it. Then it is the plan of this
// model, and a call that it says nothing of (in evaluation, with frozen layers) is no reason for an
// error.
struct PinnedPlan {
  std::atomic<bool> matched{false};
  std::atomic<bool> said_that_unplanned{false};
};

class RegionCall;

class Region : public torch::CustomClassHolder {
 public:
  // `graph` is the region's forward; `is_attribute[i]`: input i was read from the module.
  // `is_one_of_several`: under strategy budget, calls are planned as a whole.
  Region(std::shared_ptr<torch::jit::Graph> graph, std::vector<bool> is_attribute, Options options,
         bool is_one_of_several,
         std::shared_ptr<PinnedPlan> pinned_plan = std::make_shared<PinnedPlan>());

  // Takes the region's inputs from the stack and leaves its outputs there, with their autograd
  // history. Compiles a compiled region for each new set of inputs that require grad (and of
  // operators that return their argument), and under strategy budget for inputs that are larger
  // than any before: a plan made for larger ones keeps a budget in bytes for smaller ones, too (a
  // fraction is one of the peak at the sizes planned for). In a call that is planned as a whole
  // (backend/method_plans.h) it runs what that plan says. Thread-safe.
  void run(torch::jit::Stack& stack);

  // Variants that it planned by itself, in the order in which they were compiled.
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_regions() const;

  // `before` under another plan.
  std::shared_ptr<const CompiledRegion> compile_again(const CompiledRegion& before,
                                                      const SpecialisationKey& key,
                                                      const RetentionPlan& decisions) const;

 private:
  struct Planned {
    InputShapes shapes;
    std::shared_ptr<const CompiledRegion> compiled_region;  // nullptr: see variant_for
    size_t number = 0;                                      // in the order of compiling
    // A call had more than was planned for (passes/profile/profile.h): not used again.
    bool outgrown = false;
  };

  // Plans of one kind of call.
  struct Plans {
    LruCache<Planned> planned{kMaxPlans};
    SeenInCalls seen;  // where a plan turned out to be made for other sizes
    // A plan that kept the budget turned out to be made for another caller: that the budget cannot
    // be kept is found in the middle of a training then, too late for an error.
    bool is_late = false;
  };

  SpecialisationKey key_of(const std::vector<c10::IValue>& inputs) const;
  // The forward, without operators that return their argument and second names of one input: a
  // value's gradients are added in the order of its readers, whatever they call it.
  std::shared_ptr<torch::jit::Graph> graph_for(const SpecialisationKey& key) const;
  // What runs for these inputs, and is to be recorded in a call that is planned as a whole.
  std::shared_ptr<const CompiledRegion> choose(const SpecialisationKey& key,
                                               const std::vector<c10::IValue>& inputs);
  // nullptr: the region cannot be differentiated ahead of time.
  std::shared_ptr<const CompiledRegion> variant_for(const SpecialisationKey& key,
                                                    const std::vector<c10::IValue>& inputs,
                                                    const InputShapes& shapes, bool exact,
                                                    bool leanest);
  // Notes a call in which data made something larger than the plan has it; such plans are made
  // again.
  bool has_outgrown(const SpecialisationKey& key, const CompiledRegion& compiled_region,
                    const DataSizes& sizes);
  std::shared_ptr<const CompiledRegion> compile(const SpecialisationKey& key,
                                                const std::vector<c10::IValue>& inputs,
                                                const Options& options, bool leanest,
                                                const Plans& plans) const;
  // Takes out what is not to be used again; `seen` then has the reason.
  static void remove_outdated(Plans& plans);
  // Has the call watched, where its peak is to be held against a plan. Returns the watch of a step
  // of this region alone, which ends with the region's forward; nullptr: there is none.
  std::shared_ptr<StepWatch> watch(RegionCall& call) const;
  // The forward as it is, without gradients or under ordinary autograd.
  void run_uncompiled(torch::jit::Stack& stack, std::vector<c10::IValue> inputs) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<bool> is_attribute_;
  Options options_;
  bool is_one_of_several_;
  std::shared_ptr<PinnedPlan> pinned_plan_;
  std::shared_ptr<const UserRules> rules_ = registered_rules();
  Program uncompiled_;
  ReturnedArguments returned_arguments_;
  mutable std::mutex mutex_;
  std::map<SpecialisationKey, Plans> compiled_regions_;
  size_t num_compiled_ = 0;
  bool said_that_planned_again_ = false;
  bool said_that_outgrown_ = false;
  std::shared_ptr<PeakDifference> difference_;  // of steps of this region alone
};

}  // namespace aten_recompute
