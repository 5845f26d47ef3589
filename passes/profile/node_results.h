// Describes what a node returns, and makes values by such a description.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "passes/profile/described_values.h"
#include "passes/profile/node_class.h"
#include "runtime/memory_watch.h"

namespace aten_recompute {

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
