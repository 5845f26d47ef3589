#include "passes/region/choose_layout.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>

#include "common/environment.h"
#include "common/log.h"
#include "common/strategy_traits.h"
#include "common/user_error.h"
#include "passes/manager/pass_manager.h"
#include "passes/region/channels_last.h"
#include "passes/region/fuse_batch_norm.h"
#include "rules/kernels/batch_norm.h"
#include "rules/kernels/random_mask.h"
#include "runtime/arena/scratch_memory.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

// Fused operators have kernels for these only. Otherwise they would have to compute some results
// again.
bool fit_fused_kernels(const RegionInput& region) {
  const auto& inputs = region.inputs;
  return std::all_of(inputs.begin(), inputs.end(), [&](const c10::IValue& input) {
    if (!input.isTensor() || !input.toTensor().defined())
      return true;
    const auto& tensor = input.toTensor();
    return region.described.value_or(tensor.device()).is_cpu() &&
           (!tensor.is_floating_point() || tensor.scalar_type() == at::kFloat ||
            tensor.scalar_type() == at::kDouble);
  });
}

// Tests ask for this, because they cannot rely on what is faster.
bool always_channels_last() {
  return environment_is("RECOMPUTE_CHANNELS_LAST", "always");
}

// Returns whether channels last is to be tried, if it changes the graph.
bool may_try_channels_last(const RegionInput& input) {
  return input.channels_last.value_or(true) && !input.has_casts &&
         input.options.cost_model == CostModel::kMeasured &&
         may_change_layouts(input.options, input.inputs);
}

// Calls `compile`. Notes the error in `error`, unless there is one already, where a budget is out
// of reach or a plan file belongs to another layout.
std::optional<RegionGraphs> try_to_compile(const std::function<RegionGraphs()>& compile,
                                           std::exception_ptr& error) {
  try {
    return compile();
  } catch (const UserError&) {
    error = error == nullptr ? std::current_exception() : error;
  } catch (const std::invalid_argument&) {
    error = error == nullptr ? std::current_exception() : error;
  }
  return std::nullopt;
}

// Does the same for a layout that need not be tried. Under a budget in bytes, that ends where an
// operator takes more than the budget: some convolutions need many times the memory of their
// operands and results in this layout, and the first step would exceed the budget.
std::optional<RegionGraphs> try_within_budget(const RegionInput& input,
                                              const std::function<RegionGraphs()>& compile,
                                              std::exception_ptr& error) {
  if (!input.options.memory_bytes)
    return try_to_compile(compile, error);
  const ScratchMemory::Limit limit(bytes_for_profile(input));
  try {
    return try_to_compile(compile, error);
  } catch (const ScratchMemory::LimitReached&) {
    log_info(LogTopic::kProfile, "operators need more than the budget with channels last");
    return std::nullopt;
  }
}

}  // namespace

bool may_change_layouts(const Options& options, const std::vector<c10::IValue>& inputs) {
  return !options.exact && are_in_order(inputs);
}

RegionLayout usual_layout(const RegionInput& input) {
  const bool has_kernels = choose_batch_norm_kernels();
  choose_mask_kernel();
  const bool may_fuse = has_kernels && input.options.fuse && traits_of(input.options).may_fuse &&
                        !input.has_casts;  // there are no fused kernels for mixed types
  return {.channels_last = false, .is_fused = may_fuse && fit_fused_kernels(input)};
}

std::shared_ptr<Graph> forward_in(const RegionLayout& layout,
                                  const std::shared_ptr<Graph>& forward) {
  if (layout.sliced != nullptr)
    return layout.sliced;
  auto graph = forward;
  if (layout.channels_last) {
    run_pass(Pass::kChannelsLast, graph, [&] {
      if (auto changed = with_channels_last(*forward))
        graph = std::move(changed);
    });
  } else if (layout.is_fused) {
    run_pass(Pass::kFuseBatchNorm, graph, [&] {
      if (auto changed = with_fused_batch_norms(*forward))
        graph = std::move(changed);
    });
  }
  return graph;
}

RegionGraphs in_faster_layout(const RegionInput& input, const CompileInLayout& compile) {
  const auto compile_as_usual = [&] {
    const auto layout = usual_layout(input);
    return compile(layout, forward_in(layout, input.graph));
  };
  if (!may_try_channels_last(input))
    return compile_as_usual();
  const RegionLayout layout{.channels_last = true};
  const auto forward = forward_in(layout, input.graph);
  if (forward == input.graph)
    return compile_as_usual();
  const auto compile_channels_last = [&] { return compile(layout, forward); };
  if (input.channels_last || always_channels_last())
    return compile_channels_last();
  std::exception_ptr error;
  auto first = try_to_compile(compile_as_usual, error);
  if (first && !first->plan)
    return std::move(*first);  // it could not be measured
  auto last = try_within_budget(input, compile_channels_last, error);
  if (!first && !last)
    std::rethrow_exception(error);
  if (!first || !last)
    return std::move(first ? *first : *last);
  const auto seconds_first = first->plan->metrics.predicted_seconds;
  const auto seconds_last = last->plan ? last->plan->metrics.predicted_seconds : seconds_first;
  log_info(LogTopic::kProfile, "operators take " + std::to_string(seconds_last) +
                                   " s per step with channels last, " +
                                   std::to_string(seconds_first) + " s otherwise");
  return std::move(seconds_last < seconds_first ? *last : *first);
}

}  // namespace aten_recompute
