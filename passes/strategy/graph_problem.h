// The planning problem of a joint graph.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/joint_graph.h"
#include "ir/save_plan.h"
#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

struct Profile;
struct SavePlan;

// A problem and the nodes and values of the graph that its indices stand for. Values that hold no
// tensors, such as sizes and flags, are left out: keeping them costs nothing, so they always are.
struct GraphProblem {
  Problem problem;
  std::vector<torch::jit::Node*> nodes;
  std::vector<torch::jit::Value*> values;
  std::unordered_map<const torch::jit::Value*, int32_t> index;  // of `values`
  std::vector<int32_t> alternative_to;  // per node: the node in whose place it can run, or -1
};

// Returns the planning problem of `joint`. Without a profile, which strategies that do not look at
// sizes do not need, storages have no bytes, and only operators that always return views count as
// views. `accumulated`, per region input: its gradient is added to an existing one and then freed.
GraphProblem make_problem(const JointGraph& joint, const Profile* profile,
                          const std::vector<bool>& accumulated = {});

// Returns the plan that keeps for the backward what `plan` saves. All other values are dropped
// after their last use in the forward and recomputed once, before their first use in the backward.
RetentionPlan retention_of(const GraphProblem& graph, const SavePlan& plan);

}  // namespace aten_recompute
