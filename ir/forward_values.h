// Which values of a joint graph belong to its forward, and which of them its backward reads.
#pragma once

#include <unordered_set>
#include <vector>

#include "ir/joint_graph.h"

namespace torch::jit {
struct Value;
}

namespace aten_recompute {

// Describes the graph as it is when the object is made. Nodes that are added later are not known.
class ForwardValues {
 public:
  explicit ForwardValues(const JointGraph& joint);

  // Returns whether a forward node other than a constant makes the value; region inputs are not
  // computed.
  bool is_computed(torch::jit::Value* value) const { return computed_.count(value) != 0; }
  bool is_region_input(torch::jit::Value* value) const { return inputs_.count(value) != 0; }

  // Returns the forward values, region inputs and constants that the node and its nested blocks
  // read, each once.
  std::vector<torch::jit::Value*> read_by(torch::jit::Node* node) const;

  size_t num_outputs() const { return num_outputs_; }

 private:
  std::unordered_set<torch::jit::Value*> computed_;
  std::unordered_set<torch::jit::Value*> inputs_;
  std::unordered_set<torch::jit::Value*> constants_;
  size_t num_outputs_ = 0;
};

}  // namespace aten_recompute
