// The list of all passes, and the wrapper through which each of them runs.
//
//   PYTORCH_JIT_LOG_LEVEL=">pass_manager"  shows the graph after every pass
//   RECOMPUTE_LOG_LEVEL=DEBUG              says how long each pass took
//   RECOMPUTE_LINT=1                  checks the graph after every pass, as debug builds do
//   RECOMPUTE_DISABLE_PASSES=a,b      leaves out passes, to find the one that is to blame
//
// A new pass gets an enumerator in Pass, a row in kPasses (pass_manager.cpp) and one in
// kNamedPasses (passes/run_by_name.cpp), all three at the place where it first runs; the compiler
// checks this. Whoever calls it does so through run_pass(): passes/pipeline.cpp, or the pass that
// it is a part of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace torch::jit {
struct Graph;
}  // namespace torch::jit

namespace aten_recompute {

enum class Pass : uint8_t {
  // A method, up to its regions.
  kInlineModules,
  kProfilerRanges,
  kNumberConstants,
  kAutocastBlocks,
  kRestoreConvolutions,
  kAssignLayers,
  kRecordPath,
  kFoldAttributes,
  kSpecializeInputs,
  kReplaceViewAs,
  kRemoveWholeSlices,
  kPoolConstants,
  kFoldConditions,
  kPropagateConstants,
  kSimplify,
  kUnrollLoops,
  kLowerTuples,
  kFunctionalizeLists,
  kFunctionalize,
  kPropagateShapes,
  kPropagateRanks,
  kHoistAttributes,
  kSplitListAttributes,
  kSinkIntoChecks,
  kRemoveIdleDropout,
  kEliminateDeadCode,
  kMarkClobberedReads,
  kFormRegions,
  // A region.
  kNoopElimination,
  kInsertCasts,
  kChannelsLast,
  kFuseBatchNorm,
  kSliceRows,
  kExpandGradients,
  kDifferentiate,
  kSumParts,
  kHoistMetadata,
  kNameValues,
  kAlternatives,
  kProfile,
  kPlan,
  kSplice,
  kExtract,
  kSplitSums,
  kUndefinedGradients,
};

struct PassInfo {
  Pass pass;
  const char* name;  // the enumerator's, in the snake case of files
  // Results stay right without it: regions are smaller then, or plans worse.
  bool can_be_disabled;
};

// The number of passes. The last enumerator stands here and nowhere else.
inline constexpr auto kNumPasses = static_cast<size_t>(Pass::kUndefinedGradients) + 1;

// Returns whether row i of the table is about the i-th pass, for all passes.
template <class Rows>
constexpr bool has_a_row_for_each_pass(const Rows& rows) {
  size_t i = 0;
  for (const auto& row : rows) {
    if (row.pass != static_cast<Pass>(i++))
      return false;
  }
  return i == kNumPasses;
}

// All passes, in the order in which they first run.
std::span<const PassInfo> all_passes();

// Runs a pass, unless it is disabled. `graph` is the variable that holds the graph when the pass is
// over: a pass may put another graph there. Throws what the pass throws, and UserError where
// RECOMPUTE_DISABLE_PASSES names what is no pass or cannot be disabled.
void run_pass(Pass pass, const std::shared_ptr<torch::jit::Graph>& graph,
              const std::function<void()>& body);

// Runs a pass that looks at a graph without changing it, unless it is disabled. Throws as above.
void run_pass(Pass pass, const std::function<void()>& body);

// Calls `observer` with every pass that runs, until it is called with an empty function.
void set_pass_observer_for_testing(std::function<void(Pass)> observer);

}  // namespace aten_recompute
