// All passes, in order.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "passes/autodiff/differentiate.h"
#include "passes/frontend/path/path_guard.h"
#include "passes/frontend/prepare.h"
#include "passes/frontend/regions/form_regions.h"
#include "passes/profile/profile.h"
#include "passes/region/noop_elimination.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/min_cut.h"
#include "passes/strategy/strategies.h"
#include "planner/model/problem.h"
#include "planner/model/simulator.h"
#include "planner/search/budget.h"
#include "rules/user_rules.h"

namespace aten_recompute {

// A method compiled up to its regions, which are compiled when they first run.
struct PreparedMethod {
  std::shared_ptr<torch::jit::Graph> graph;  // its first input is the module
  Assumptions assumptions;
  Regions regions;
  // The graph checks during the call whether it takes the path that it was compiled for. Where it
  // does not, path_left() returns true, and the call has to be made again with another graph, after
  // `written` are restored.
  bool may_leave_path() const { return !checks.empty(); }
  std::vector<PathCheck> checks;  // by their place
  // The graph sets attributes, or changes containers of the caller, later than the method does. A
  // call that raises has to be made again as the method was scripted.
  bool has_late_changes = false;
  std::vector<std::vector<std::string>> written;  // paths of attributes that the graph writes to
};

struct MethodInput {
  std::shared_ptr<torch::jit::Graph> graph;  // the method as scripted or traced; not changed
  c10::intrusive_ptr<c10::ivalue::Object> self;
  std::vector<c10::IValue> inputs;    // of the first call, self not counted
  std::string layer_pattern;          // Options::layer_pattern
  bool may_record_path = true;        // where this saves borders between regions
  std::set<int64_t> kept_branches{};  // record_path()'s `kept`
};

// Compiles a method up to its regions. Where control flow or containers would split it into
// several, it is compiled for the path that this call takes (passes/frontend/path/record_path.h).
PreparedMethod prepare_method(const MethodInput& input);

// Returns a copy of the method's graph with the methods that it calls in it, for a call that runs
// without a plan.
std::shared_ptr<torch::jit::Graph> inline_method(torch::jit::Graph& graph);

// Throws std::invalid_argument if the pattern (Options::layer_pattern) matches no module that the
// method calls.
void check_layer_pattern(torch::jit::Graph& method, const std::string& pattern);

struct RegionInput {
  std::shared_ptr<torch::jit::Graph> graph;  // the region's forward; not changed
  std::vector<bool> requires_grad;           // per input
  std::vector<bool> is_attribute;            // per input: read from the module
  Options options;
  const std::vector<c10::IValue>& inputs;  // of the first call: strategies that look at sizes run
                                           // the forward once on them, without effects
  // Strategy budget: whatever the budget, the smallest peak that is found. For a region that runs
  // before it is known what else the method's call will need.
  bool leanest = false;
  SeenInCalls seen;                                             // for the profile
  std::shared_ptr<const UserRules> rules = registered_rules();  // what users' rules are
  // Strategy budget: plans of this region, differentiated alike, for inputs of other sizes.
  std::vector<KnownPlan> known{};
  // The largest peak without recomputation of plans for other inputs; 0: there were none.
  int64_t largest_unplanned_bytes = 0;
  // Without Options::exact: what an earlier compilation of this region chose, if there was one.
  std::optional<bool> channels_last{};
  // The inputs are meta tensors that stand for tensors on this device, and nothing runs.
  std::optional<at::Device> described{};
};

// What a plan promises; from the profile, so zero without one.
struct PlanMetrics {
  int64_t predicted_peak_bytes = 0;   // above what rests before the step
  int64_t unplanned_peak_bytes = 0;   // of keeping everything
  int64_t fraction_counts_from = 0;   // what a budget is a fraction of (Options::fraction_of)
  int64_t predicted_saved_bytes = 0;  // alive between forward and backward
  int64_t outside_bytes = 0;          // of these, kept by operators outside of regions
  double predicted_seconds = 0.0;     // forward and backward
  double unplanned_seconds = 0.0;
  double profile_seconds = 0.0;  // what compiling spent
  double plan_seconds = 0.0;
  size_t num_nodes = 0;    // of the joint graph
  size_t num_classes = 0;  // nodes that the profile ran
};
PlanMetrics figures_of(const Problem& problem, const Simulation& planned,
                       const Simulation& unplanned);
// Returns the end of a sentence about a plan: "; predicted peak 1000 bytes of 2000 without
// recomputation, 1.1 times its time".
std::string describe(const PlanMetrics& figures);

// Values of a region's problem, by index; -1 for what is no tensor.
struct RegionBoundary {
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> gradients;  // in Gradient::df_output_vjps' order
};

struct RegionGraphs {
  std::shared_ptr<torch::jit::Graph> source;  // RegionInput::graph
  bool channels_last = false;                 // images have their channels last
  bool is_fused = false;                      // operators were fused, where there are some to fuse
  torch::jit::Gradient gradient;              // forward and backward as they run
  // With Options::save_ir: forward and backward that keep all that the backward reads.
  std::shared_ptr<const torch::jit::Gradient> captured;
  // Per output of the backward: which of Gradient::df_output_vjps it is a summand of
  // (passes/partition/split_sums.h).
  std::vector<size_t> summand_of;
  DifferentiatedOperators operators;
  std::vector<std::string> saved;       // names of saved intermediate values
  std::vector<std::string> recomputed;  // names of recomputed values
  std::vector<Banned> banned;           // by min_cut: operators that may not run again
  UnmatchedWords unmatched;             // of strategies names and ops
  PlanMetrics figures;
  // With a profile only: what was planned for, the plan, and what keeps all that the backward
  // reads.
  DataSizes data_sizes;                                // Profile::data_sizes
  std::vector<c10::IValue> described_outputs;          // Profile::outputs
  SeenInCalls assumed;                                 // RegionInput::seen
  std::vector<std::pair<size_t, int64_t>> data_nodes;  // of the problem, and symbols::kDataSizes
  std::shared_ptr<const Problem> problem;
  std::shared_ptr<const RetentionPlan> decisions;
  std::shared_ptr<const RetentionPlan> unplanned;
  RegionBoundary ends;
};

// Returns whether a region may be compiled with the channels of its images last for these inputs:
// results need not be exact, and the program has not chosen layouts of its own.
bool may_change_layouts(const Options& options, const std::vector<c10::IValue>& inputs);

// Differentiates, profiles, plans, and separates forward and backward. Throws NotProfiled where the
// region's forward raises on these inputs, and NotDifferentiable.
RegionGraphs compile_region(const RegionInput& input);

// A region's joint graph, what its nodes cost, and its planning problem, which is not solved.
struct RegionProfile {
  JointGraph joint;
  Profile costs;
  GraphProblem problem;
};

// Differentiates and profiles. The options decide which operators are fused, and the cost model.
// Throws NotProfiled and NotDifferentiable.
RegionProfile profile_region(const RegionInput& input);

// The same region under another plan. `before` was compiled from the same graph, with a profile,
// for the same inputs that require grad; nothing is profiled again.
RegionGraphs recompile_with_plan(const RegionInput& input, const RegionGraphs& before,
                                 const RetentionPlan& decisions);

// What compile_region() does last: brings the backward into the form that runs. For graphs that
// were made by hand.
void finish_backward(RegionGraphs& graphs);

}  // namespace aten_recompute
