// Key under which nodes of equal cost are grouped.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "passes/profile/described_values.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

struct NodeDescription {
  // The operator; sizes, strides, types, devices and plain values of its operands; which of them
  // share memory, and their offsets from each other and from the start of a cache line.
  std::string key;
  // Offsets of the operands in their storages, and the sizes of these. Slices of one tensor differ
  // only in this, which matters where a result is a view of an operand.
  std::string places;
  // One tensor of each storage among the operands, in order of appearance.
  std::vector<at::Tensor> memory;
};

// Returns the description of a node. `index` is its instruction; nodes with blocks have a key of
// their own by it. Storages of the operands that have no index in `storages` get one.
NodeDescription describe_node(const torch::jit::Node* node, size_t index,
                              const std::vector<c10::IValue>& operands,
                              DescribedStorages& storages);

}  // namespace aten_recompute
