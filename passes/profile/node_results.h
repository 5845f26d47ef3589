// What a node returns, described without memory, and values made by such a description.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "passes/profile/described_values.h"
#include "passes/profile/region_profile.h"
#include "runtime/memory_watch.h"

namespace aten_recompute {

// Where a result of a node lies: in the memory of an operand, or in memory that the node allocated.
struct ResultMemory {
  int operand_storage = -1;  // index into the storages of the operands, in order of appearance
  size_t own = 0;            // otherwise: index among the node's own storages
};

struct ResultTensor {
  bool defined = false;
  at::TensorOptions options;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  ResultMemory memory;
};

// One result of a node: tensors by description, other values as they are.
struct Result {
  enum class Kind { kPlain, kTensor, kList, kTuple, kOpaque };
  Kind kind = Kind::kPlain;
  c10::IValue plain;
  ResultTensor tensor;
  c10::TypePtr element_type;
  std::vector<Result> elements;
  int64_t opaque_bytes = 0;
};

// What a node costs and returns.
struct NodeClass {
  NodeCost cost;
  std::vector<Result> results;
  // Per own storage: the bytes that it takes, and the bytes that its tensors may use of it.
  std::vector<int64_t> own_bytes;
  std::vector<int64_t> own_extent;
  // If the node has a tape: the storages that it keeps alive, by operand storage and by own
  // storage. Without a value they are unknown, and all of the operands' are assumed.
  struct Held {
    std::vector<bool> operands;
    std::vector<bool> own;
  };
  std::optional<Held> held;
};

// Index of each storage among those of the operands, by the address of its StorageImpl.
using OperandStorages = std::unordered_map<const void*, int>;

// Returns whether the result, or an element of it, is a view of an operand.
bool is_in_an_operand(const Result& result);

// Fills in the results of `node_class` and their own storages. `watch` has counted what the run of
// `node` allocated. Throws NotImplementedError for a tensor that has no description.
void describe_results(const torch::jit::Stack& results, const torch::jit::Node* node,
                      const OperandStorages& operand_storages, const MemoryWatch& watch,
                      NodeClass& node_class);

// The node whose results instantiate_results() makes.
struct NodeInstance {
  size_t instruction;
  const std::vector<c10::IValue>& operands;
  const std::vector<at::Tensor>& memory;  // as NodeDescription::memory
  const std::string& class_name;
};

// Returns values as a node of the class would return them, without memory. `storages` gets the
// storages that the node allocates.
torch::jit::Stack instantiate_results(const NodeClass& node_class, const NodeInstance& instance,
                                      DescribedStorages& storages);

// Returns the device of the last tensor among the operands; the CPU where there is none.
at::Device device_of_operands(const std::vector<c10::IValue>& operands,
                              DescribedStorages& storages);

}  // namespace aten_recompute
