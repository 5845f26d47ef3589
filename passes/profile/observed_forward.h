// A region's forward on the call's own inputs, watched: for what zeros do not tell.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "passes/profile/node_classes.h"
#include "passes/profile/profile.h"
#include "runtime/program.h"
#include "runtime/random_state.h"

namespace aten_recompute {

// Runs when it is first asked; from the random state of before the profile, with copies of what the
// region writes to, and letting go of each value once it is read for the last time.
class ObservedForward {
 public:
  // `nodes[i]` is instruction i of `program`, the first `num_forward` of which are the forward. All
  // outlive this.
  ObservedForward(const Program& program, const std::vector<torch::jit::Node*>& nodes,
                  size_t num_forward, const std::vector<c10::IValue>& inputs, NodeClasses& classes);

  // Throws NotProfiled where the forward raises.
  const NodeClass& at(size_t instruction);

 private:
  void run();

  const Program& program_;
  const std::vector<torch::jit::Node*>& nodes_;
  size_t num_forward_;
  const std::vector<c10::IValue>& inputs_;
  NodeClasses& classes_;
  RandomStates random_states_;
  std::vector<NodeClass> observed_;
};

// Appends the sizes of what a node returned to `sizes`, after they have been raised to those of
// `at_least` at the same places.
void note_data_sizes(NodeClass& node_class, DataSizes& sizes, const DataSizes& at_least);

}  // namespace aten_recompute
