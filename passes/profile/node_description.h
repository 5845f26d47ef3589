// By what nodes that cost the same are known.
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
  // Operator, and of its operands sizes, strides, types, devices, plain values, which of them share
  // memory and how they lie in it to each other, and to a cache line.
  std::string key;
  // Where in their memory the operands lie, and how large that is. Slices of one tensor differ in
  // this alone: it matters where a result is a view of an operand.
  std::string places;
  // One tensor of each storage among the operands, in order of appearance.
  std::vector<at::Tensor> memory;
};

// `index`: the node's instruction. The operands' storages get an index where they have none.
NodeDescription describe_node(const torch::jit::Node* node, size_t index,
                              const std::vector<c10::IValue>& operands,
                              DescribedStorages& storages);

}  // namespace aten_recompute
