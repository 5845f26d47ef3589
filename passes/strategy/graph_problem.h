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

// Indices of `problem` and what they stand for. Values that are no tensors (sizes, flags) do not
// appear: they cost nothing to keep and always are.
struct GraphProblem {
  Problem problem;
  std::vector<torch::jit::Node*> nodes;
  std::vector<torch::jit::Value*> values;
  std::unordered_map<const torch::jit::Value*, int32_t> index;  // of `values`
  std::vector<int32_t> alternative_to;  // per node: the node that it can stand for, or -1
};

// Without a profile: strategies that look at no sizes. Storages then have no bytes, and only
// operators that always return views count as such.
// `accumulated`, per region input: its gradient is added to one that exists, and gone.
GraphProblem make_problem(const JointGraph& joint, const Profile* profile,
                          const std::vector<bool>& accumulated = {});

// What to keep for the backward, as decisions: what is not in it goes at the end of the forward and
// is computed again once, where it is first needed.
RetentionPlan decisions_of(const GraphProblem& graph, const SavePlan& plan);

}  // namespace aten_recompute
