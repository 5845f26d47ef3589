// The sizes of all tensors of a region's forward for the inputs of one call, and what its operators
// need.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/joint_graph.h"
#include "passes/profile/region_profile.h"
#include "passes/region/known_tensors.h"

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// What an operator needs while it or a part of its gradient runs; the most that any of them does.
struct OperatorNeeds {
  int64_t bytes = 0;            // operands that are not the caller's, results and workspace
  int64_t workspace_bytes = 0;  // of that, what is neither operand nor result
};

// By the place of a value or node in the graph, so that they hold for each copy of it.
class ForwardTensors {
 public:
  // Profiles forward and backward (passes/profile/profile.h), without plans. Throws NotProfiled.
  ForwardTensors(const std::shared_ptr<torch::jit::Graph>& forward,
                 const std::vector<bool>& requires_grad, const std::vector<c10::IValue>& inputs,
                 const ProfileAssumptions& seen = {}, std::optional<at::Device> described = {},
                 ProfileLimit limit = {});

  // Return them for the values and nodes of that forward or of a copy.
  KnownTensors of(const torch::jit::Graph& forward) const;
  std::unordered_map<const torch::jit::Node*, OperatorNeeds> needs_of(
      const torch::jit::Graph& forward) const;
  // Returns the bytes that the operator needs which needs most.
  int64_t largest_need() const;

 private:
  void note_tensors(const JointGraph& joint, const Profile& costs);
  void note_needs(const JointGraph& joint, const Profile& costs);

  std::vector<std::vector<TensorDescription>> inputs_;
  std::vector<std::vector<std::vector<TensorDescription>>> outputs_;  // per node and output
  std::vector<OperatorNeeds> needs_;                                  // per node
};

}  // namespace aten_recompute
