// The set of forward values that are kept for the backward.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "ir/joint_graph.h"

namespace torch::jit {
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Forward values to keep for the backward, identified by Value::unique() in the joint graph. Values
// that are not tensors are always kept, and region inputs are always available. Everything else
// that the backward needs is recomputed from these.
struct SavePlan {
  std::unordered_set<size_t> saved;
};

// Returns the forward values that the backward reads directly, tensors and tapes only, in forward
// order.
std::vector<torch::jit::Value*> captured_values(const JointGraph& joint);

// Returns the plan that recomputes nothing: it saves the captured values, with each view replaced
// by the tensor that it is a view of.
SavePlan save_everything(const JointGraph& joint);

}  // namespace aten_recompute
