// What is decided about a region, and what the decision assumes and promises.
#pragma once

#include <aten_recompute/errors.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/profile/region_profile.h"
#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"
#include "planner/model/simulator.h"

namespace aten_recompute {

// What the caller does with a region's outputs. This is for the plan; the profile has no use for
// it.
struct CallerAssumptions {
  // Per incoming gradient: whether its output is freed before the backward begins. Empty: none is.
  std::vector<bool> freed_before_backward;
  // Problem::loss_bytes and Problem::held_by_caller, as multiples of the bytes of the incoming
  // gradients.
  std::optional<double> loss_factor;  // nothing: not measured, so 1 is assumed
  double held_factor = 0.0;
  double other_calls = 0.0;  // Problem::other_calls
  // Backwards of a call: 1 leaves the graph in memory, 2 is another one after it; 0: one frees it.
  double retained = 0.0;
  size_t num_fewer = 0;  // how often a plan was made because there were fewer of one of these
};

// What earlier calls have shown and the region's inputs do not tell.
struct SeenInCalls {
  ProfileAssumptions profile;
  CallerAssumptions caller;
};

// What a plan promises; from the profile, so zero without one.
struct PlanMetrics {
  int64_t predicted_peak_bytes = 0;   // above what is alive before the step
  int64_t unplanned_peak_bytes = 0;   // of keeping everything
  int64_t fraction_counts_from = 0;   // what a budget is a fraction of (Options::fraction_of)
  int64_t predicted_saved_bytes = 0;  // alive between forward and backward
  int64_t outside_bytes = 0;          // of these, kept by operators outside of regions
  double other_calls = 0.0;           // Problem::other_calls
  int64_t unplanned_saved_bytes = 0;  // alive between forward and backward, of keeping everything
  double predicted_seconds = 0.0;     // forward and backward
  double unplanned_seconds = 0.0;
  double profile_seconds = 0.0;  // what compiling spent
  double plan_seconds = 0.0;
  size_t num_nodes = 0;        // of the joint graph
  size_t num_classes = 0;      // nodes that the profile ran
  PeakOperator peak_operator;  // where predicted_peak_bytes are; without a name if nothing runs
};

// Returns what a plan promises; `unplanned` keeps everything. The simulator's last run is then that
// of `planned`.
PlanMetrics metrics_of(Simulator& simulator, const RetentionPlan& planned,
                       const RetentionPlan& unplanned);

// Returns the end of a sentence about a plan: "; predicted peak 1000 bytes of 2000 without
// recomputation, 1.1 times its time; the peak is at aten::relu of layer3.0 (resnet.py:52)".
std::string describe(const PlanMetrics& metrics);

// Values of a region's problem, by index; -1 for what is no tensor.
struct RegionBoundary {
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> gradients;  // in Gradient::df_output_vjps' order
};

// The plan of a region that was profiled.
struct RegionPlan {
  std::shared_ptr<const Problem> problem;
  // The problem as the plan for the whole method refers to it, where `problem` has fewer results;
  // otherwise nullptr.
  std::shared_ptr<const Problem> of_method{};
  std::shared_ptr<const RetentionPlan> retention;
  std::vector<int32_t> handed{};  // given values of the problem that another region makes again
  std::shared_ptr<const RetentionPlan> unplanned;  // keeps all that the backward reads
  RegionBoundary boundary;
  PlanMetrics metrics;
  SeenInCalls assumed;
  DataSizes data_sizes;  // Profile::data_sizes
  // Nodes of the problem whose results have sizes that data decide, and symbols::kDataSizes of
  // each.
  std::vector<std::pair<size_t, int64_t>> data_nodes;
  std::vector<c10::IValue> described_outputs;  // Profile::outputs
};

}  // namespace aten_recompute
