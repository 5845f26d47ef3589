// From a strategy to what is saved. Planning returns plain data; only splice() changes a graph.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "ir/save_plan.h"
#include "passes/strategy/graph_problem.h"

namespace aten_recompute {

// Bytes of each forward value that owns its storage, by Value::unique() in the joint graph; views
// have 0.
using ValueBytes = std::unordered_map<size_t, int64_t>;

struct PlanInput {
  const JointGraph& joint;
  const Options& options;
  const std::vector<bool>& is_attribute;  // per region input: read from the module
  const ValueBytes& bytes;                // empty unless needs_profile(options)
};

// Does the strategy look at sizes or times? Then the region is profiled before it is planned.
bool needs_profile(const Options& options);

// Bytes of the values that own their storage.
ValueBytes value_bytes(const GraphProblem& graph);

// What to save for the backward under the options' strategy.
SavePlan make_plan(const PlanInput& input);

// Strategies names and ops: the words that pick nothing of what is kept by default, and the names
// of what there is to pick.
struct UnmatchedWords {
  std::set<std::string> words;
  std::set<std::string> names;
};
UnmatchedWords unmatched_words(const JointGraph& joint, const Options& options);

// Strategy segments: plans to choose from by their peaks, as to keep a value that only some paths
// go through pays in some networks and not in others. The first is make_plan()'s.
std::vector<SavePlan> segment_plans(const PlanInput& input);

// Layer of each forward value, by Value::unique(): the greatest of its node's own layer and its
// inputs' layers; -1 before the first layer. A mark_layer operator sets its output's layer.
std::unordered_map<size_t, int64_t> value_layers(const JointGraph& joint);

}  // namespace aten_recompute
