// Decides what is saved under the strategies that pick single values, layers or segments. The
// result is plain data; only splice() changes a graph. plan_region.cpp chooses the function of a
// strategy.
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

// Bytes of each forward value, by Value::unique() in the joint graph. A view has none.
using ValueBytes = std::unordered_map<size_t, int64_t>;

struct PlanInput {
  const JointGraph& joint;
  const Options& options;
  const std::vector<bool>& is_attribute;  // per region input: is a parameter or buffer
  const ValueBytes& bytes;                // empty unless needs_profile(options)
};

// Whether the region has to be profiled before it is planned, because the strategy needs sizes or
// times or the caller asks for a profile.
bool needs_profile(const Options& options);

// Returns the bytes of the values that nodes of the problem make.
ValueBytes value_bytes(const GraphProblem& graph);

// Strategy `all`: saves what the recomputation of each layer starts from.
SavePlan plan_all_layers(const PlanInput& input);

// Strategy `layers`: recomputes the layers that `layer_ratio`, or `layer_start` and `layer_stride`,
// select.
SavePlan plan_some_layers(const PlanInput& input);

// Strategies `names` and `ops`: recomputes the values that one of the user's words matches.
SavePlan plan_words(const PlanInput& input);

// Strategies `names` and `ops`: words of the user that match no value which is saved by default.
struct UnmatchedWords {
  std::set<std::string> words;
  std::set<std::string> names;  // what could have been matched
};
UnmatchedWords unmatched_words(const JointGraph& joint, const Options& options);

// Strategy `min_cut`: an operator that must not run again, and why.
struct Banned {
  std::string value;  // name of its first result
  std::string reason;
};

// Strategy `segments`: returns one or two plans, of which the caller chooses by their peaks,
// because it depends on the network whether keeping a value pays that only some paths go through.
std::vector<SavePlan> segment_plans(const PlanInput& input);

// Returns the layer of each forward value, by Value::unique(): the greatest of the layers of its
// node and of the node's inputs; -1 before the first layer. A mark_layer operator sets the layer of
// its output.
std::unordered_map<size_t, int64_t> value_layers(const JointGraph& joint);

}  // namespace aten_recompute
