// What a region's forward and backward cost, node by node: bytes, seconds, floating-point
// operations.
#pragma once

#include <ATen/core/ivalue.h>

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

struct NodeCost {
  double seconds = 0.0;
  double flops = 0.0;
  int64_t replay_bytes = 0;     // of the random state that a second run needs
  int64_t workspace_bytes = 0;  // most memory alive during the run, without operands and results
  // Nodes with the same number were measured as one; 0: the seconds were computed, or they are
  // those of a run on the inputs.
  size_t measured_class = 0;
};

// Sizes that data decide: for each such tensor its sizes, and for each number that is read off a
// tensor that number. In the order of the nodes that make them.
using DataSizes = std::vector<std::vector<int64_t>>;

// The share by which all tensors of such sizes together may grow before a new plan is made.
inline constexpr double kDataGrowth = 0.03;

// Per incoming gradient and dimension: whether the gradient is expanded there (stride 0), as that
// of a sum is. An undefined gradient counts as expanded in every dimension. Empty: none is
// expanded.
using ExpandedDimensions = std::vector<std::vector<bool>>;

// What earlier calls have shown and a profile cannot know of the region's inputs.
struct ProfileAssumptions {
  DataSizes data_sizes;  // used where the number of dimensions is the same
  ExpandedDimensions expanded;
};

// How much memory a profile may take.
struct ProfileLimit {
  // An operator whose operands and results need more, those of the caller excepted, does not run.
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
  // One that turns out to need more while it runs, for a workspace that nothing tells before, is
  // stopped. It is taken to need more than `most_bytes`; how much more is not known.
  bool stops_operators = false;

  bool is_set() const { return most_bytes != std::numeric_limits<int64_t>::max(); }
};

// The region cannot be profiled.
class NotProfiled : public std::runtime_error {
 public:
  NotProfiled(const std::string& what, bool inputs_are_to_blame)
      : std::runtime_error(what), inputs_are_to_blame_(inputs_are_to_blame) {}
  // Whether the region's forward raised on these inputs; it may work on others.
  bool inputs_are_to_blame() const { return inputs_are_to_blame_; }

 private:
  bool inputs_are_to_blame_;
};

// What is known of a tensor in a value.
struct TensorDescription {
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
};

struct Profile {
  // Per storage. A view shares the storage of what it views.
  std::vector<int64_t> storage_bytes;
  std::vector<bool> storage_is_callers;  // belongs to a region input: parameter, batch, buffer
  // By Value::unique(): the storages of a tensor, or of the tensors in a container.
  std::unordered_map<size_t, std::vector<int32_t>> storages;
  // By Value::unique(): bytes of all elements. An expanded tensor has more than its storage, a
  // slice has less.
  std::unordered_map<size_t, int64_t> tensor_bytes;
  // By Value::unique(): the tensors in the value.
  std::unordered_map<size_t, std::vector<TensorDescription>> tensors;
  // Per node: the operands whose layouts allow that the result takes their memory
  // (ir/memory_reuse.h), in the order in which they are tried.
  std::unordered_map<const torch::jit::Node*, std::vector<size_t>> overwritable;
  std::unordered_map<const torch::jit::Node*, NodeCost> nodes;
  // Per region input: the first input that is the same tensor. Tied weights are one tensor under
  // two names.
  std::vector<size_t> same_as;
  // Number of classes of nodes with equal operator, arguments, sizes and types: one node of each
  // ran.
  size_t num_classes = 0;
  // Number of nodes that did not run because they need too much memory, and were estimated.
  size_t num_too_large = 0;
  // The sizes that the profile assumed. Attribute symbols::kDataSizes of a node is the index of its
  // first one.
  DataSizes data_sizes;
  // With `described` only: the region's outputs, as meta tensors.
  std::vector<c10::IValue> outputs;
  double seconds = 0.0;  // duration of the profile itself
};

}  // namespace aten_recompute
