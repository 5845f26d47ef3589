// The list of all passes, and the wrapper through which each of them runs.
//
//   PYTORCH_JIT_LOG_LEVEL=">pass_manager"  shows the graph after every pass
//   RECOMPUTE_LOG_LEVEL=DEBUG              says how long each pass took
//   RECOMPUTE_LINT=1                  checks the graph after every pass, as debug builds do
//   RECOMPUTE_DISABLE_PASSES=a,b      leaves out passes, to find the one that is to blame
//
// A new pass gets an enumerator in Pass and a row in all_passes(), in the order in which they run,
// and is called through run_pass().
#pragma once

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
  kAutocastBlocks,
  kRestoreConvolutions,
  kAssignLayers,
  kRecordPath,
  kFoldAttributes,
  kSpecializeInputs,
  kReplaceViewAs,
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
  kExpandGradients,
  kDifferentiate,
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
