// Which forward values are kept for the backward, as a set.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "ir/joint_graph.h"

namespace torch::jit {
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Forward values to keep for the backward, by Value::unique() in the joint graph. Values that are
// not tensors are always kept, and region inputs are available in any case. Everything else that
// the backward needs and that is not listed is computed again from what is kept.
struct SavePlan {
  std::unordered_set<size_t> saved;
};

// Returns the forward values that the backward reads directly, tensors and tapes only, in forward
// order.
std::vector<torch::jit::Value*> captured_values(const JointGraph& joint);

// Returns what is saved when nothing is computed again: the captured values, where each view is
// replaced by the tensor that it is a view of.
SavePlan save_everything(const JointGraph& joint);

}  // namespace aten_recompute
