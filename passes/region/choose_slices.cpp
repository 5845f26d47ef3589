#include "passes/region/choose_slices.h"

#include <aten_recompute/errors.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <string>

#include "common/log.h"
#include "common/size_text.h"
#include "passes/manager/pass_manager.h"
#include "passes/region/choose_layout.h"
#include "passes/region/forward_tensors.h"
#include "passes/region/slice_rows.h"

namespace aten_recompute {
namespace {

bool may_use_slices(const RegionInput& input) {
  const auto& options = input.options;
  const bool has_budget = options.memory_bytes.has_value() || options.memory_fraction.has_value();
  return !options.exact && options.strategy == StrategyKind::kBudget && has_budget &&
         !input.leanest && !input.has_casts;
}

// Keeps the error with the smaller peak.
void keep_smaller(std::shared_ptr<const BudgetUnreachableError>& smallest,
                  const BudgetUnreachableError& error) {
  if (smallest == nullptr || error.smallest_peak_bytes < smallest->smallest_peak_bytes)
    smallest = std::make_shared<BudgetUnreachableError>(error);
}

// Compiles the region as it is, and then with more and smaller slices. Throws the error of the
// smallest peak.
RegionGraphs compile_with_slices(const RegionInput& input, const CompileRegion& compile,
                                 const CompileForward& compile_forward) {
  std::shared_ptr<const BudgetUnreachableError> smallest;
  try {
    return compile(input);
  } catch (const BudgetUnreachableError& error) {
    keep_smaller(smallest, error);
  }
  const auto limit = smallest->limit_bytes;
  const auto unplanned = smallest->unplanned_peak_bytes;
  auto in_bytes = input;
  // A fraction counts from the peak of the program as it is.
  in_bytes.options.memory_fraction.reset();
  in_bytes.options.memory_bytes = limit;
  in_bytes.known.clear();
  const auto forward = forward_in(usual_layout(input), input.graph);
  const ForwardTensors tensors(forward, input.requires_grad, input.inputs, input.seen.profile,
                               input.described, input.most_profiled_bytes);
  // The same thresholds for each budget, so that the smallest peak of an error can be kept.
  for (const int64_t share : {2, 4, 8, 16, 32, 64}) {
    SlicedForward sliced;
    run_pass(Pass::kSliceRows, sliced.graph,
             [&] { sliced = slice_rows(*forward, tensors, unplanned / share); });
    if (sliced.num_stretches == 0)
      continue;
    try {
      auto graphs = compile_forward(in_bytes, sliced.graph);
      if (graphs.plan)
        graphs.plan->metrics.unplanned_peak_bytes = unplanned;
      log_info(LogTopic::kPlan, "memory_budget: " + std::to_string(sliced.num_stretches) +
                                    " stretches of operators run slice by slice, because no plan "
                                    "of the operators as they are keeps " +
                                    nearest_size(limit));
      return graphs;
    } catch (const BudgetUnreachableError& error) {
      log_info(LogTopic::kPlan, "with " + std::to_string(sliced.num_stretches) +
                                    " stretches in slices, the smallest peak is " +
                                    nearest_size(error.smallest_peak_bytes) + ", at " +
                                    error.peak_operator.name + " of " + error.peak_operator.layer);
      keep_smaller(smallest, error);
    }
  }
  smallest->raise();
  throw;  // not reached
}

}  // namespace

RegionGraphs in_slices_if_needed(const RegionInput& input, const CompileRegion& compile,
                                 const CompileForward& compile_forward) {
  if (!may_use_slices(input))
    return compile(input);
  auto strict = input;
  strict.options.leanest_if_unreachable = false;
  try {
    // What needs more than the budget can only run in slices, and may have no memory to be profiled.
    if (input.options.memory_bytes) {
      strict.most_profiled_bytes = *input.options.memory_bytes;
      try {
        return compile_with_slices(strict, compile, compile_forward);
      } catch (const BudgetUnreachableError&) {
        strict.most_profiled_bytes = input.most_profiled_bytes;  // the error has to be exact
      }
    }
    return compile_with_slices(strict, compile, compile_forward);
  } catch (const BudgetUnreachableError&) {
    if (!input.options.leanest_if_unreachable)
      throw;
  }
  return compile(input);
}

}  // namespace aten_recompute
