#include "passes/manager/pass_manager.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>

#include <array>
#include <chrono>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/did_you_mean.h"
#include "common/environment.h"
#include "common/join.h"
#include "common/log.h"
#include "common/user_error.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

constexpr bool kOptional = true;
constexpr bool kNeeded = false;

constexpr std::array kPasses{
    PassInfo{Pass::kInlineModules, "inline_modules", kNeeded},
    PassInfo{Pass::kProfilerRanges, "profiler_ranges", kNeeded},
    PassInfo{Pass::kNumberConstants, "number_constants", kNeeded},
    PassInfo{Pass::kAutocastBlocks, "autocast_blocks", kNeeded},
    PassInfo{Pass::kRestoreConvolutions, "restore_convolutions", kNeeded},
    PassInfo{Pass::kAssignLayers, "assign_layers", kOptional},
    PassInfo{Pass::kRecordPath, "record_path", kOptional},
    PassInfo{Pass::kFoldAttributes, "fold_attributes", kOptional},
    PassInfo{Pass::kSpecializeInputs, "specialize_inputs", kOptional},
    PassInfo{Pass::kReplaceViewAs, "replace_view_as", kOptional},
    PassInfo{Pass::kRemoveWholeSlices, "remove_whole_slices", kOptional},
    PassInfo{Pass::kPoolConstants, "pool_constants", kOptional},
    PassInfo{Pass::kFoldConditions, "fold_conditions", kOptional},
    PassInfo{Pass::kPropagateConstants, "propagate_constants", kOptional},
    PassInfo{Pass::kSimplify, "simplify", kOptional},
    PassInfo{Pass::kUnrollLoops, "unroll_loops", kOptional},
    PassInfo{Pass::kLowerTuples, "lower_tuples", kOptional},
    PassInfo{Pass::kFunctionalizeLists, "functionalize_lists", kOptional},
    PassInfo{Pass::kFunctionalize, "functionalize", kOptional},
    PassInfo{Pass::kPropagateShapes, "propagate_shapes", kOptional},
    PassInfo{Pass::kPropagateRanks, "propagate_ranks", kOptional},
    PassInfo{Pass::kHoistAttributes, "hoist_attributes", kOptional},
    PassInfo{Pass::kSplitListAttributes, "split_list_attributes", kOptional},
    PassInfo{Pass::kSinkIntoChecks, "sink_into_checks", kOptional},
    // A dropout that does nothing returns its argument, which its schema does not say.
    PassInfo{Pass::kRemoveIdleDropout, "remove_idle_dropout", kNeeded},
    PassInfo{Pass::kEliminateDeadCode, "eliminate_dead_code", kOptional},
    PassInfo{Pass::kMarkClobberedReads, "mark_clobbered_reads", kNeeded},
    PassInfo{Pass::kFormRegions, "form_regions", kNeeded},
    // It decides in which order gradients are added, and so their last bits.
    PassInfo{Pass::kNoopElimination, "noop_elimination", kNeeded},
    PassInfo{Pass::kInsertCasts, "insert_casts", kNeeded},
    PassInfo{Pass::kChannelsLast, "channels_last", kOptional},
    PassInfo{Pass::kFuseBatchNorm, "fuse_batch_norm", kOptional},
    PassInfo{Pass::kSliceRows, "slice_rows", kOptional},
    PassInfo{Pass::kExpandGradients, "expand_gradients", kNeeded},
    PassInfo{Pass::kDifferentiate, "differentiate", kNeeded},
    PassInfo{Pass::kSumParts, "sum_parts", kOptional},
    PassInfo{Pass::kHoistMetadata, "hoist_metadata", kOptional},
    PassInfo{Pass::kNameValues, "name_values", kOptional},
    PassInfo{Pass::kAlternatives, "alternatives", kOptional},
    PassInfo{Pass::kProfile, "profile", kNeeded},
    PassInfo{Pass::kPlan, "plan", kNeeded},
    PassInfo{Pass::kSplice, "splice", kNeeded},
    PassInfo{Pass::kExtract, "extract", kNeeded},
    PassInfo{Pass::kSplitSums, "split_sums", kNeeded},
    PassInfo{Pass::kUndefinedGradients, "undefined_gradients", kNeeded},
};

static_assert(has_a_row_for_each_pass(kPasses),
              "kPasses has a row for each enumerator of Pass, in their order");

const PassInfo& info_of(Pass pass) {
  return kPasses[static_cast<size_t>(pass)];
}

bool lint_enabled() {
#ifdef ATEN_RECOMPUTE_LINT
  return true;
#else
  static const bool enabled = environment_is("RECOMPUTE_LINT", "1");
  return enabled;
#endif
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  std::vector<std::string> names;
  for (const auto& info : kPasses) {
    if (info.can_be_disabled)
      names.emplace_back(info.name);
  }
  throw UserError("RECOMPUTE_DISABLE_PASSES: \"" + name + "\" " + why +
                  "; passes that can be disabled are " + join(names) + did_you_mean(name, names));
}

// Read at each pass, so that a debugger or a test can set it at any time.
bool is_disabled(Pass pass) {
  const auto value = environment("RECOMPUTE_DISABLE_PASSES");
  if (!value)
    return false;
  bool disabled = false;
  std::istringstream names(*value);
  for (std::string name; std::getline(names, name, ',');) {
    if (name.empty())
      continue;
    const PassInfo* named = nullptr;
    for (const auto& info : kPasses) {
      if (name == info.name)
        named = &info;
    }
    if (named == nullptr)
      refuse(name, "is no pass");
    if (!named->can_be_disabled)
      refuse(name, "is needed for right results");
    disabled = disabled || named->pass == pass;
  }
  return disabled;
}

struct Observer {
  std::mutex mutex;
  std::function<void(Pass)> function;
};

Observer& observer() {
  static Observer instance;
  return instance;
}

void tell_observer(Pass pass) {
  const std::lock_guard<std::mutex> lock(observer().mutex);
  if (observer().function)
    observer().function(pass);
}

void run_timed(Pass pass, const std::function<void()>& body) {
  tell_observer(pass);
  const auto start = std::chrono::steady_clock::now();
  body();
  if (log_enabled(LogTopic::kProfile, LogLevel::kDebug)) {
    const std::chrono::duration<double, std::milli> passed =
        std::chrono::steady_clock::now() - start;
    log_debug(LogTopic::kProfile,
              std::string(info_of(pass).name) + ": " + std::to_string(passed.count()) + " ms");
  }
}

}  // namespace

std::span<const PassInfo> all_passes() {
  return kPasses;
}

void run_pass(Pass pass, const std::shared_ptr<Graph>& graph, const std::function<void()>& body) {
  if (is_disabled(pass))
    return;
  run_timed(pass, body);
  GRAPH_DUMP(std::string("after ") + info_of(pass).name, graph);
  if (lint_enabled())
    graph->lint();
}

void run_pass(Pass pass, const std::function<void()>& body) {
  if (!is_disabled(pass))
    run_timed(pass, body);
}

void set_pass_observer_for_testing(std::function<void(Pass)> function) {
  const std::lock_guard<std::mutex> lock(observer().mutex);
  observer().function = std::move(function);
}

}  // namespace aten_recompute
