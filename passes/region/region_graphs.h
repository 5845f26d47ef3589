// A region, before and after it is compiled.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "passes/frontend/path/method_memory.h"
#include "passes/partition/split_sums.h"
#include "passes/region/insert_casts.h"
#include "passes/strategy/region_plan.h"
#include "passes/strategy/strategies.h"
#include "planner/search/budget.h"
#include "rules/user_rules.h"
#include "runtime/autocast.h"
#include "runtime/tape_reach.h"

namespace aten_recompute {

class MeasuredTimes;  // passes/profile/measured_times.h

// How the forward of a region is compiled (passes/region/choose_layout.h, choose_slices.h).
struct RegionLayout {
  bool channels_last = false;  // images have their channels last
  bool is_fused = false;       // operators are fused, where there are some to fuse
  // The forward with stretches that run slice by slice (passes/region/slice_rows.h); null: none do.
  std::shared_ptr<torch::jit::Graph> sliced{};
  size_t num_sliced = 0;  // how many stretches those are
};

// A plan of a region's forward in slices, for inputs of other sizes.
struct KnownLayout {
  RegionLayout layout;
  KnownPlan plan;
};

struct RegionInput {
  std::shared_ptr<torch::jit::Graph> graph;  // the region's forward; not changed
  std::vector<bool> requires_grad;           // per input
  std::vector<bool> is_attribute;            // per input: read from the module
  Options options;
  const std::vector<c10::IValue>& inputs;  // of the first call: strategies that look at sizes run
                                           // the forward once on them, without effects
  // Under a budget: the smallest peak that is found, whatever the budget is. This is for a region
  // that runs before it is known what else the method's call will need.
  bool leanest = false;
  SeenInCalls seen;
  std::shared_ptr<const UserRules> rules = registered_rules();  // what users' rules are
  // Under a budget: plans of this region, differentiated alike, for inputs of other sizes.
  std::vector<KnownPlan> known{};
  // The largest peak without recomputation of plans for other inputs; 0: there were none.
  int64_t largest_unplanned_bytes = 0;
  // Without Options::exact: what an earlier compilation of this region chose, if there was one.
  std::optional<bool> channels_last{};
  // What autocast does to the call; operators are cast in the graph then.
  AutocastState autocast{};
  bool has_casts = false;  // set when they have been made, as the next member
  SharedCasts shared_casts{};
  // The method has other regions, with which this one is planned.
  bool is_one_of_several = false;
  MethodMemory method_memory{};  // empty if the region is one of several
  // Under a budget in bytes, the plan leaves a part of it free for larger calls, if possible.
  bool leaves_room = false;
  // Under a budget in bytes: as `known`, the latest last. One that keeps it is taken again.
  std::vector<KnownLayout> known_layouts{};
  // No plan is searched for if none of `known` keeps the budget: NoKnownPlan is thrown.
  bool only_known = false;
  ProfileLimit profile_limit{};
  // What profiles of this compilation have measured; null: there is only one.
  std::shared_ptr<MeasuredTimes> measured_times{};
  // The inputs are meta tensors that stand for tensors on this device, and nothing runs.
  std::optional<at::Device> described{};
};

// Returns how much memory a profile may take under a budget in bytes, which there must be.
inline int64_t bytes_for_profile(const RegionInput& input) {
  return *input.options.memory_bytes - bytes_of_copies(input.method_memory, input.inputs);
}

// What is told about a compiled region, by name.
struct RegionReport {
  DifferentiatedOperators operators;
  std::vector<std::string> saved;       // intermediate values
  std::vector<std::string> recomputed;  // values
  std::vector<Banned> banned;           // by min_cut: operators that may not run again
  UnmatchedWords unmatched;             // of strategies that match words
  double plan_seconds = 0.0;            // that deciding took
};

// A compiled region: what runs, the plan that it follows, and what is told about it.
struct RegionGraphs {
  // RegionInput::graph, with the casts of autocast.
  std::shared_ptr<torch::jit::Graph> source;
  std::vector<bool> is_attribute;  // RegionInput::is_attribute
  // WithCasts::shared, those with a gradient.
  SharedCasts shared_casts;
  // The others: autocast keeps these casts as well, and later calls may need their gradients.
  SharedCasts casts_without_gradient;
  RegionLayout layout;
  torch::jit::Gradient gradient;  // forward and backward as they run
  TapeSources tape_sources;       // which of its outputs require grad in a call
  // Per output of the backward: what it is of a gradient of Gradient::df_output_vjps.
  std::vector<Summand> summands;
  // With Options::save_ir: forward and backward that keep all that the backward reads.
  std::shared_ptr<const torch::jit::Gradient> captured;
  std::vector<FreedOutput> freed;  // as in JointGraph
  std::optional<RegionPlan> plan;  // of a region that was profiled
  RegionReport report;
};

}  // namespace aten_recompute
