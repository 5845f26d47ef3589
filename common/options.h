// What the user asks for: the strategy that chooses what is recomputed, and its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aten_recompute {

enum class StrategyKind { kNone, kAll, kNames, kLayers, kOps, kSegments, kMinCut, kBudget, kPlan };

/// Where a plan's seconds come from: measured on this machine, or computed from sizes (the same on
/// every machine).
enum class CostModel { kMeasured, kFlops };

/// min_cut: which operators may run again in the backward, and what saving a value costs. Names and
/// defaults are those of PyTorch's partitioner where it has any; docs/min_cut.md explains each.
struct MinCutOptions {
  // Bans: operators that do not run again.
  bool ban_if_used_far_apart = true;
  bool ban_if_long_fusible_chains = true;
  bool ban_if_materialized_backward = true;
  bool ban_if_not_in_allowlist = true;
  bool ban_if_reduction = true;
  bool recompute_views = false;
  bool recompute_random = false;
  bool aggressive_recomputation = false;  // turns the first four bans off
  int64_t max_dist_from_bw = 1000;
  int64_t max_fusible_depth = 100;
  double reduction_ratio = 4.0;
  // Operator names, in place of the default lists.
  std::optional<std::vector<std::string>> recomputable_ops;
  std::optional<std::vector<std::string>> compute_intensive_ops;

  // Costs.
  bool treat_parameters_as_free_to_save = true;
  double distance_weight = 1.1;
  double not_materialized_weight = 2.0;

  bool operator==(const MinCutOptions&) const = default;
};

/// A validated request. Fields that do not belong to `strategy` keep their defaults.
struct Options {
  StrategyKind strategy = StrategyKind::kNone;

  /// names: a value is recomputed if its name contains one of these. One that starts with "%"
  /// matches value names only
  /// ("%relu": the value's name contains "relu"); the "%" is kept here.
  std::vector<std::string> keywords;

  /// ops: ATen operator names, e.g. "relu"; a leading "aten::" is dropped.
  std::vector<std::string> ops;

  /// layers: layers `layer_start`, `layer_start + layer_stride`, ... are recomputed, unless
  /// `layer_ratio` is set.
  int64_t layer_start = 0;
  int64_t layer_stride = 1;

  /// layers: the first `layer_ratio` of the layers, in (0, 1].
  std::optional<double> layer_ratio;

  /// segments: how many segments, >= 1; without it the planner decides.
  std::optional<int64_t> segment_count;

  MinCutOptions min_cut;

  /// all, layers: a regular expression (ECMAScript) over module paths that names the layers; empty:
  /// found from the module hierarchy.
  std::string layer_pattern;

  /// budget: the peak that a training step may reach, counted above what rests before it: a
  /// fraction of the peak of keeping everything, in (0, 1], or bytes. At most one of them.
  std::optional<double> memory_fraction;
  std::optional<int64_t> memory_bytes;

  /// budget: the step time that may be reached, >= 1, as a multiple of the time of keeping
  /// everything; the plan of the smallest peak is then looked for (within the memory budget, if
  /// there is one).
  std::optional<double> time_budget;

  /// budget: where no plan keeps it, the leanest that is found runs and a warning says so.
  /// Otherwise that is an error.
  bool leanest_if_unreachable = false;

  /// plan: a plan file (planner/model/plan_file.h), its text.
  std::string plan;

  /// The step adds to `.grad`s that exist already (gradient accumulation, or
  /// zero_grad(set_to_none=False)): they rest, and a new gradient is gone as soon as it is added.
  /// Otherwise every parameter gradient is new memory that stays to the end of the step.
  bool accumulate = false;

  /// Nothing of the outputs' size lives on while the backward runs: neither does the caller hold
  /// them, nor does the loss keep as much. (A cross entropy keeps the logarithms of the
  /// probabilities until its own backward; behind the scalar of a mean squared error lies the
  /// memory of a full tensor, to the end of the step.) Otherwise outputs are taken to live on.
  bool release_outputs = false;

  /// budget, and where `profile` is set.
  CostModel cost_model = CostModel::kMeasured;

  /// The region's costs are measured and its peak predicted where the strategy needs neither.
  bool profile = false;

  /// A second region in a method is an error.
  bool fullgraph = false;

  bool operator==(const Options&) const = default;
};

/// Reads a spec: "" (nothing asked for) or a JSON object. Throws std::invalid_argument with one
/// line that names the key, what was given and what is accepted.
Options parse_options(const std::string& text);

/// `parse_options`, except that where the spec names no strategy the environment variable RECOMPUTE
/// decides; with neither, nothing is recomputed. An invalid RECOMPUTE logs one warning and counts
/// as absent; an invalid spec throws as in `parse_options`.
Options resolve_options(const std::string& spec_text);

/// The canonical JSON of `options`, in one line; `parse_options` gives the same options back.
std::string to_json(const Options& options);

/// A short form for people, e.g. "layers start=0 stride=2".
std::string describe(const Options& options);

/// The strategies with their keys and what each accepts, one line each.
std::string strategy_help();

}  // namespace aten_recompute
