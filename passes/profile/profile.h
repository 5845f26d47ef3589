// What a region's forward and backward cost, node by node: bytes, seconds, floating-point
// operations.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

struct NodeCost {
  double seconds = 0.0;
  double flops = 0.0;
  int64_t replay_bytes = 0;     // what is noted for running it again: a random state
  int64_t workspace_bytes = 0;  // alive at the worst moment of the run, beyond operands and results
};

// Sizes of what data decide the sizes of, each tensor's; a number that is read off a tensor is a
// size, too. In the order of the nodes that make them.
using DataSizes = std::vector<std::vector<int64_t>>;

// Per incoming gradient and dimension: do all indices of it name one element, as in the gradient of
// a sum? Where a gradient is undefined, in every dimension. Empty: in none.
using ExpandedDimensions = std::vector<std::vector<bool>>;

// What the region's inputs do not tell, as the calls before have shown it.
struct SeenInCalls {
  DataSizes data_sizes;  // taken to be at least so large, where there are as many
  ExpandedDimensions expanded;
  // Per incoming gradient: is its output gone when the backward begins? Empty: none is. For the
  // plan; it does not change the profile.
  std::vector<bool> freed_before_backward;
  // For the plan, as multiples of the bytes of the incoming gradients: Problem::loss_bytes and
  // Problem::held_by_caller.
  std::optional<double> loss_factor;  // nothing: it was not measured, so that 1 is assumed
  double held_factor = 0.0;
};

// The region cannot be profiled.
class NotProfiled : public std::runtime_error {
 public:
  NotProfiled(const std::string& what, bool inputs_are_to_blame)
      : std::runtime_error(what), inputs_are_to_blame_(inputs_are_to_blame) {}
  // The region's forward raised on these inputs, as it will when it runs; others may do.
  bool inputs_are_to_blame() const { return inputs_are_to_blame_; }

 private:
  bool inputs_are_to_blame_;
};

struct Profile {
  // Memory, by index. A view shares the storage of what it views.
  std::vector<int64_t> storage_bytes;
  std::vector<bool> storage_is_callers;  // of a region input: parameters, batches, buffers
  // By Value::unique(): the storages of a tensor, or of the tensors in a container.
  std::unordered_map<size_t, std::vector<int32_t>> storages;
  // The same of their elements, wherever these lie: an expanded tensor has more of them than its
  // storage has room for, a slice fewer.
  std::unordered_map<size_t, int64_t> tensor_bytes;
  // Per node: which operands' layouts allow that the result takes their memory
  // (ir/memory_reuse.h), in the order in which they are tried.
  std::unordered_map<const torch::jit::Node*, std::vector<size_t>> overwritable;
  std::unordered_map<const torch::jit::Node*, NodeCost> nodes;
  // Per region input: the first that is the same tensor, as a tied weight is under its second name.
  std::vector<size_t> same_as;
  // Nodes that were run: one per class of equal operator, arguments, sizes and types.
  size_t num_classes = 0;
  // What the profile went by; symbols::kDataSizes on the node that makes the first of them.
  DataSizes data_sizes;
  double seconds = 0.0;  // that the profile itself took
};

// Walks the joint graph without running it: values stand for tensors of known sizes, types and
// aliasing, but without memory. Nodes of one class (the same operator on the same sizes, types and
// arguments) cost the same, so one of each class is run, on the region's inputs where it reads them
// and on zeros elsewhere, timed, and watched allocating. The walk needs the memory of one node at a
// time, mutates nothing, and puts random generators back.
//
// With CostModel::kFlops, `seconds` is computed from operations and bytes moved instead: the same
// on every machine.
//
// Where data decide sizes, or an operator does not take zeros, the forward runs once on the inputs,
// without effects and without keeping anything, and its nodes are measured as they pass by
// (passes/profile/observed_forward.h). A backward node that does not take zeros is priced by the
// FLOP model, its sizes found on meta tensors.
//
// Inputs may be on the meta device: then everything is, and seconds come from the FLOP model.
// Throws NotProfiled.
Profile profile(const JointGraph& joint, const std::vector<c10::IValue>& inputs,
                CostModel cost_model, const SeenInCalls& seen = {});

}  // namespace aten_recompute
