#include "passes/region/choose_slices.h"

#include <aten_recompute/errors.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/environment.h"
#include "common/log.h"
#include "common/size_text.h"
#include "ir/symbols.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/manager/pass_manager.h"
#include "passes/profile/region_profile.h"
#include "passes/region/choose_layout.h"
#include "passes/region/forward_tensors.h"
#include "passes/region/slice_rows.h"
#include "planner/model/explain_peak.h"
#include "planner/search/budget.h"
#include "runtime/arena/scratch_memory.h"

namespace aten_recompute {
namespace {

// The longest slices that are tried (Slicing::coarseness).
constexpr int64_t kCoarsest = 128;

bool may_use_slices(const RegionInput& input) {
  const auto& options = input.options;
  const bool has_budget = options.memory_bytes.has_value() || options.memory_fraction.has_value();
  return !options.exact && options.strategy == StrategyKind::kBudget && has_budget &&
         !input.leanest;
}

// The layouts of a region that have been tried in vain.
class Attempts {
 public:
  // Notes that a layout cannot keep the budget; nothing stands for the usual one.
  void add(const BudgetUnreachableError& error, std::optional<RegionLayout> layout = {}) {
    if (error_ != nullptr && error.smallest_peak_bytes >= error_->smallest_peak_bytes)
      return;
    error_ = std::make_shared<BudgetUnreachableError>(error);
    layout_ = std::move(layout);
  }

  // Of the layout with the smallest peak.
  const BudgetUnreachableError& error() const { return *error_; }
  const std::optional<RegionLayout>& layout() const { return layout_; }

 private:
  std::shared_ptr<const BudgetUnreachableError> error_;
  std::optional<RegionLayout> layout_;
};

// Tests ask for this: every operator that can runs in slices, whatever the options are.
bool always_in_slices() {
  return environment_is("RECOMPUTE_SLICES", "always");
}

RegionGraphs all_in_slices(const RegionInput& input, const CompileRegion& compile,
                           const CompileSliced& compile_sliced) {
  const auto forward = forward_in(usual_layout(input), input.graph);
  const ForwardTensors tensors(forward, input.requires_grad, input.inputs, input.seen.profile,
                               input.described);
  const auto sliced = slice_rows(*forward, tensors, {});
  return sliced.num_stretches == 0
             ? compile(input)
             : compile_sliced(input, {.sliced = sliced.graph, .num_sliced = sliced.num_stretches});
}

class SliceChooser {
 public:
  SliceChooser(const RegionInput& input, const CompileRegion& compile,
               const CompileSliced& compile_sliced)
      : input_(input), compile_(compile), compile_sliced_(compile_sliced) {}

  RegionGraphs choose() {
    auto strict = input_;
    strict.options.leanest_if_unreachable = false;
    if (input_.options.memory_bytes) {
      // What needs more than the budget can only run in slices, and may have no memory to be
      // profiled.
      strict.profile_limit = {bytes_for_profile(input_), /*stops_operators=*/true};
    }
    if (auto known = try_known(strict))
      return std::move(*known);
    auto graphs = try_all(strict);
    const auto limit = strict.profile_limit.most_bytes;
    const bool has_limit = limit < input_.profile_limit.most_bytes;
    if (!graphs && has_limit && (largest_need_ > limit || has_tried_slices_)) {
      // What was estimated has to be measured, because the error names the smallest peak; but
      // nothing needs to run for it that takes more.
      strict.profile_limit = {
          std::min(input_.profile_limit.most_bytes, attempts_.error().smallest_peak_bytes)};
      graphs = try_all(strict);
    }
    if (graphs)
      return std::move(*graphs);
    if (!input_.options.leanest_if_unreachable)
      attempts_.error().raise();
    return attempts_.layout() ? in_slices(input_, *attempts_.layout()) : compile_(input_);
  }

 private:
  // Returns the region under a plan that has been found for inputs of other sizes, if one keeps the
  // budget: those of the region as it is, and then the latest with slices.
  std::optional<RegionGraphs> try_known(const RegionInput& input) {
    constexpr size_t kMostTried = 2;
    if (input.known_layouts.empty() || !input.options.memory_bytes)
      return std::nullopt;
    auto only_known = input;
    only_known.only_known = true;
    try {
      return compile_(only_known);
    } catch (const NoKnownPlan& none) {
      unplanned_bytes_ = none.unplanned_peak_bytes;
      limit_bytes_ = *input.options.memory_bytes;
    }
    for (size_t i = 0; i < std::min(kMostTried, input.known_layouts.size()); ++i) {
      const auto& [layout, plan] = input.known_layouts[input.known_layouts.size() - 1 - i];
      only_known.known = {plan};
      try {
        return in_slices(only_known, layout);
      } catch (const NoKnownPlan&) {
        continue;  // the next one may keep it
      } catch (const NotProfiled& error) {
        note_not_profiled(error);
      } catch (const ScratchMemory::LimitReached& error) {
        note_not_profiled(error);
      }
    }
    return std::nullopt;
  }

  static void note_not_profiled(const std::exception& error) {
    log_info(LogTopic::kPlan,
             std::string("stretches in slices cannot be profiled: ") + error.what());
  }

  // Compiles the region as it is, and then with more and smaller slices. Returns nothing where no
  // layout keeps the budget.
  std::optional<RegionGraphs> try_all(const RegionInput& input) {
    attempts_ = {};
    failed_.clear();
    try {
      auto graphs = compile_(input);
      if (is_slow(input, graphs))
        try_faster(input, graphs);
      return graphs;
    } catch (const BudgetUnreachableError& error) {
      unplanned_bytes_ = error.unplanned_peak_bytes;
      limit_bytes_ = error.limit_bytes;
      attempts_.add(error);
    }
    const auto forward = forward_in(usual_layout(input), input.graph);
    const auto tensors = tensors_of(input, forward);
    if (!tensors)
      return std::nullopt;
    largest_need_ = tensors->largest_need();
    // The same thresholds for each budget, so that the smallest peak of an error can be kept.
    std::optional<RegionGraphs> fastest;
    // With few operators in slices, a plan may have to compute much again. With more of them, it
    // may take less time; but each attempt takes a search.
    int64_t attempts_left = 2;
    for (const int64_t share : {2, 4, 8, 16, 32, 64}) {
      if (fastest && (!is_slow(input, *fastest) || attempts_left-- == 0))
        break;
      auto graphs = coarsest(input, *forward, *tensors, unplanned_bytes_ / share);
      if (graphs && (!fastest || is_faster(*graphs, *fastest)))
        fastest = std::move(graphs);
    }
    if (fastest) {
      log_info(LogTopic::kPlan,
               "memory_budget: stretches of operators run slice by slice, "
               "because no plan of the operators as they are keeps " +
                   nearest_size(limit_bytes_));
    }
    return fastest;
  }

  static std::optional<ForwardTensors> tensors_of(
      const RegionInput& input, const std::shared_ptr<torch::jit::Graph>& forward) {
    try {
      return ForwardTensors(forward, input.requires_grad, input.inputs, input.seen.profile,
                            input.described, input.profile_limit);
    } catch (const NotProfiled& error) {
      log_info(LogTopic::kPlan, std::string("nothing can run in slices: ") + error.what());
      return std::nullopt;
    }
  }

  // Returns whether the plan computes so much again that slices, or more of them, may take less
  // time. Times that are computed do not tell what slices cost.
  static bool is_slow(const RegionInput& input, const RegionGraphs& graphs) {
    constexpr double kSlow = 1.15;  // of the time without recomputation
    return graphs.plan && input.options.cost_model == CostModel::kMeasured &&
           graphs.plan->metrics.predicted_seconds > kSlow * graphs.plan->metrics.unplanned_seconds;
  }

  // Replaces the graphs by those of a layout with slices that takes less time, if one does.
  void try_faster(const RegionInput& input, RegionGraphs& graphs) {
    const auto& metrics = graphs.plan->metrics;
    unplanned_bytes_ = metrics.unplanned_peak_bytes;
    limit_bytes_ = budget_bytes(input.options, metrics.fraction_counts_from);
    const auto forward = forward_in(usual_layout(input), input.graph);
    const auto tensors = tensors_of(input, forward);
    if (!tensors)
      return;
    log_info(LogTopic::kPlan, "without slices, a plan keeps the budget and takes " +
                                  std::to_string(metrics.predicted_seconds) + " s per step");
    for (const int64_t share : {2, 8}) {
      const auto limit = unplanned_bytes_ / share;
      std::optional<RegionGraphs> sliced;
      for (const auto coarseness : {kCoarsest, kCoarsest / 4, kCoarsest / 16}) {
        if (!sliced)
          sliced = try_slices(input, *forward, *tensors, {limit, {coarseness}});
      }
      if (sliced && is_faster(*sliced, graphs))
        graphs = std::move(*sliced);
    }
  }

  static bool is_faster(const RegionGraphs& graphs, const RegionGraphs& others) {
    return graphs.plan && others.plan &&
           graphs.plan->metrics.predicted_seconds < others.plan->metrics.predicted_seconds;
  }

  // Compiles the region with slices that are as few and long as keep the budget. Returns nothing
  // where none do.
  std::optional<RegionGraphs> coarsest(const RegionInput& input, const torch::jit::Graph& forward,
                                       const ForwardTensors& tensors, int64_t limit_bytes) {
    auto graphs = try_slices(input, forward, tensors, {limit_bytes, {kCoarsest}});
    if (graphs)
      return graphs;
    graphs = try_slices(input, forward, tensors, {limit_bytes});
    if (!graphs)
      return std::nullopt;
    int64_t coarseness = kCoarsest / 2;
    for (; coarseness > 1; coarseness /= 2) {
      if (auto coarse = try_slices(input, forward, tensors, {limit_bytes, {coarseness}})) {
        graphs = std::move(coarse);
        break;
      }
    }
    coarsen_each(input, forward, tensors, {limit_bytes, {coarseness}}, *graphs);
    return graphs;
  }

  // Replaces the graphs, whose slices `slicing` describes, by faster ones in which some stretches
  // have longer slices: often only one stretch needs the short ones.
  void coarsen_each(const RegionInput& input, const torch::jit::Graph& forward,
                    const ForwardTensors& tensors, Slicing slicing, RegionGraphs& graphs) {
    constexpr size_t kMostStretches = 4;  // the first are those of the largest operators
    const auto shortest = slicing.coarseness.back();
    slicing.coarseness.assign(num_stretches_ + 1, shortest);
    for (size_t i = 0; i < std::min(slicing.coarseness.size() - 1, kMostStretches); ++i) {
      for (auto coarseness = kCoarsest; coarseness > shortest; coarseness /= 4) {
        slicing.coarseness[i] = coarseness;
        auto coarse = try_slices(input, forward, tensors, slicing);
        if (coarse && is_faster(*coarse, graphs)) {
          graphs = std::move(*coarse);
          break;
        }
        slicing.coarseness[i] = shortest;
      }
    }
  }

  // Returns the operators of each stretch, and into how many slices it is divided.
  static std::vector<std::string> stretches_of(const torch::jit::Graph& sliced) {
    std::vector<std::string> stretches;
    for (const auto* node : sliced.nodes()) {
      if (node->kind() == symbols::kSliced)
        stretches.push_back(
            std::to_string(node->i(symbols::kSlices)) + " " +
            node->g(c10::attr::Subgraph)->toString(/*print_source_locations=*/false));
    }
    return stretches;
  }

  // Compiles the region with slices. Returns nothing where there are none, or they do not help.
  std::optional<RegionGraphs> try_slices(const RegionInput& input, const torch::jit::Graph& forward,
                                         const ForwardTensors& tensors, const Slicing& slicing) {
    SlicedForward sliced;
    run_pass(Pass::kSliceRows, sliced.graph,
             [&] { sliced = slice_rows(forward, tensors, slicing); });
    if (sliced.num_stretches == 0)
      return std::nullopt;
    has_tried_slices_ = true;
    auto divided = stretches_of(*sliced.graph);
    if (failed_.count(divided) != 0)
      return std::nullopt;
    const RegionLayout layout{.sliced = sliced.graph, .num_sliced = sliced.num_stretches};
    try {
      auto graphs = in_slices(input, layout);
      num_stretches_ = sliced.num_stretches;
      if (graphs.plan)
        log_info(LogTopic::kPlan, "with " + std::to_string(num_stretches_) +
                                      " stretches in slices, a plan keeps the budget and takes " +
                                      std::to_string(graphs.plan->metrics.predicted_seconds) +
                                      " s per step");
      return graphs;
    } catch (const BudgetUnreachableError& error) {
      log_info(LogTopic::kPlan, "with " + std::to_string(sliced.num_stretches) +
                                    " stretches in slices, the smallest peak is " +
                                    nearest_size(error.smallest_peak_bytes) + ", at " +
                                    describe(error.peak_operator));
      attempts_.add(error, layout);
      failed_.insert(std::move(divided));
    } catch (const NotDifferentiable& error) {
      log_info(LogTopic::kPlan,
               std::string("stretches in slices cannot be differentiated: ") + error.what());
    } catch (const NotProfiled& error) {
      note_not_profiled(error);
    } catch (const ScratchMemory::LimitReached& error) {
      note_not_profiled(error);
    }
    return std::nullopt;
  }

  RegionGraphs in_slices(const RegionInput& input, const RegionLayout& layout) const {
    auto in_bytes = input;
    // A fraction counts from the peak of the program as it is.
    in_bytes.options.memory_fraction.reset();
    in_bytes.options.memory_bytes = limit_bytes_;
    if (!in_bytes.only_known)
      in_bytes.known.clear();  // they are of the region as it is
    auto graphs = compile_sliced_(in_bytes, layout);
    if (graphs.plan)
      graphs.plan->metrics.unplanned_peak_bytes = unplanned_bytes_;
    return graphs;
  }

  const RegionInput& input_;
  const CompileRegion& compile_;
  const CompileSliced& compile_sliced_;
  Attempts attempts_;
  bool has_tried_slices_ = false;
  size_t num_stretches_ = 0;                   // of those slices that kept the budget last
  std::set<std::vector<std::string>> failed_;  // stretches_of() layouts that cannot keep it
  int64_t limit_bytes_ = 0;
  int64_t largest_need_ = 0;     // of an operator as it is
  int64_t unplanned_bytes_ = 0;  // the peak of the program as it is, without recomputation
};

}  // namespace

RegionGraphs in_slices_if_needed(const RegionInput& input, const CompileRegion& compile,
                                 const CompileSliced& compile_sliced) {
  if (always_in_slices())
    return all_in_slices(input, compile, compile_sliced);
  return may_use_slices(input) ? SliceChooser(input, compile, compile_sliced).choose()
                               : compile(input);
}

}  // namespace aten_recompute
