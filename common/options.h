// The user's options: the strategy that chooses what is recomputed, and its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aten_recompute {

enum class StrategyKind { kNone, kAll, kNames, kLayers, kOps, kSegments, kMinCut, kBudget, kPlan };

// What sets one strategy apart from others, so that nobody outside of passes/strategy has to know
// which one it is. The table of strategies (common/option_table.h) has one for each.
struct StrategyTraits {
  // It decides by sizes or seconds, so the region is profiled before it is planned.
  bool needs_profile = false;
  // It does not speak of operators or layers as the program has them, so operators may be fused.
  bool may_fuse = false;
  // Its plan may compute a value in another way than the program does (passes/autodiff).
  bool wants_alternatives = false;
  // The regions of a method are planned together, and a region that cannot be profiled keeps as
  // little as possible.
  bool plans_whole_calls = false;
  // It keeps a limit, so a plan holds up to the sizes that it was made for, and is replaced where
  // steps take more than it assumed. The tags must_save and must_recompute hold.
  bool keeps_budget = false;
  // The plan comes from a file.
  bool follows_plan_file = false;
  // The user gives words that values or operators have to match.
  bool matches_words = false;

  // Returns whether what is compiled depends on the shapes of inputs. A plan from a file does only
  // where several regions run in a call, because shapes tell their runs apart there.
  bool depends_on_shapes(bool is_one_of_several) const {
    return keeps_budget || (plans_whole_calls && is_one_of_several);
  }
};

// Where the seconds in a plan come from: they are measured on this machine, or computed from
// sizes, which gives the same plan on every machine.
enum class CostModel { kMeasured, kFlops };

// Which peak without recomputation a memory budget is a fraction of.
enum class FractionOf {
  kFirst,    // that of the inputs that the plan is made for
  kLargest,  // the largest of those of all inputs so far
};

// Says what happens to the memory of a step's tensors after the step (runtime/arena).
enum class ArenaMode {
  kKeep,     // it is kept between steps
  kRelease,  // it goes back to the system after each step
  kOff,      // tensors come from LibTorch's allocator
};

// Options of min_cut: which operators may run again in the backward, and what it costs to save a
// value. Options that PyTorch's partitioner also has keep its names and defaults; docs/min_cut.md
// explains each option.
struct MinCutOptions {
  // Bans, which keep operators from running again.
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
  // Operator names that replace the default lists.
  std::optional<std::vector<std::string>> recomputable_ops;
  std::optional<std::vector<std::string>> compute_intensive_ops;

  // Costs.
  bool treat_parameters_as_free_to_save = true;
  double distance_weight = 1.1;
  double not_materialized_weight = 2.0;

  bool operator==(const MinCutOptions&) const = default;
};

// Validated options. Fields that do not belong to `strategy` keep their defaults.
struct Options {
  StrategyKind strategy = StrategyKind::kNone;

  // names: a value is recomputed if its name contains one of these keywords. A leading "%", as the
  // IR prints names, is kept here but ignored by the strategy.
  std::vector<std::string> keywords;

  // ops: ATen operator names, e.g. "relu"; a leading "aten::" is dropped.
  std::vector<std::string> ops;

  // layers: layers `layer_start`, `layer_start + layer_stride`, ... are recomputed, unless
  // `layer_ratio` is set.
  int64_t layer_start = 0;
  int64_t layer_stride = 1;

  // layers: the first `layer_ratio` of the layers, in (0, 1].
  std::optional<double> layer_ratio;

  // segments: the number of segments, >= 1. Without it the planner chooses the number.
  std::optional<int64_t> segment_count;

  MinCutOptions min_cut;

  // all, layers: a regular expression (ECMAScript) over module paths that selects the layers. If
  // empty, the layers are found from the module hierarchy.
  std::string layer_pattern;

  // budget: the peak that a training step may reach, above the memory that is in use before the
  // step. It is a fraction of the peak without recomputation, in (0, 1], or a number of bytes; at
  // most one of the two is set.
  std::optional<double> memory_fraction;
  std::optional<int64_t> memory_bytes;
  FractionOf fraction_of = FractionOf::kFirst;

  // budget: the step time that may be reached, >= 1, as a multiple of the step time without
  // recomputation. The plan with the smallest peak is then searched for, within the memory budget
  // if there is one.
  std::optional<double> time_budget;

  // budget: if no plan satisfies the budget, a plan near the smallest peak runs and a warning says
  // so. Otherwise that is an error.
  bool leanest_if_unreachable = false;

  // budget: the step time, >= 1, that such a plan may take, as a multiple of the step time without
  // recomputation.
  double leanest_time = kLeanestTime;
  static constexpr double kLeanestTime = 2.0;

  // budget: where a call runs out of memory, plans are made again under a smaller budget, and the
  // call is made again once. Otherwise that is an error only.
  bool retries_leaner = false;

  // plan: the text of a plan file (planner/model/plan_file.h).
  std::string plan;

  // The step adds to `.grad` tensors that exist already (gradient accumulation, or
  // zero_grad(set_to_none=False)). They do not count toward the peak, and a new gradient is freed
  // as soon as it is added. Otherwise every parameter gradient is new memory that lives until the
  // end of the step.
  bool accumulate = false;

  // No memory of the outputs' size lives on while the backward runs: the caller does not hold the
  // outputs, and the loss does not keep as much memory. (A cross entropy keeps the
  // log-probabilities until its own backward; the scalar of a mean squared error holds the memory
  // of a full tensor until the end of the step.) Otherwise outputs are assumed to live on.
  bool release_outputs = false;

  // Used by budget, and by every strategy if `profile` is set.
  CostModel cost_model = CostModel::kMeasured;

  // Measures the region's costs and predicts its peak, even if the strategy needs neither.
  bool profile = false;

  // Results have the bits of eager PyTorch's. Otherwise a region may compute with other layouts
  // of its tensors where that is faster, and results differ in the last bits. This makes a
  // profile, and costs one more.
  bool exact = true;

  // Lets one operator compute several of the program where it has the same bits: a batch norm and
  // the activation after it.
  bool fuse = true;

  // Makes a second region in a method an error.
  bool fullgraph = false;

  // Writes forward and backward of each region, before and after recomputation, to files
  // (backend/pictures/artifacts.h). The environment variable RECOMPUTE_SAVE_IR turns it on, too.
  bool save_ir = false;

  // The memory that tensors of a step lie in on the CPU: at planned places in one arena.
  ArenaMode arena = ArenaMode::kKeep;

  bool operator==(const Options&) const = default;
};

}  // namespace aten_recompute
