// What the nodes of one class cost and return, described without memory.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "passes/profile/region_profile.h"

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
  // Elements are conjugated, or negated, by the operators that read them, which may copy them.
  bool is_conj = false;
  bool is_neg = false;
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

}  // namespace aten_recompute
