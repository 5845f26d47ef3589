// Runs elementwise operators and softmax so that the result takes the memory of an operand that is
// not used afterward. ir/memory_reuse.h describes the rule.
#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "ir/operator_facts.h"

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// A way of computing an operator's result into the memory of an operand. Values, sizes, strides and
// dtype are those of the functional operator; nothing is allocated.
struct InPlaceForm {
  size_t operand;                               // index of the overwritten operand
  std::function<void(torch::jit::Stack&)> run;  // replaces the operands on the stack by the result
  ReuseCondition condition;
};

// Returns the in-place forms of `node`'s operator, the best first. Most operators have none.
std::vector<InPlaceForm> in_place_forms(const torch::jit::Node* node);

// Returns whether `form` may run on `operands`: nothing else refers to the memory of the operand
// that it overwrites, and the layouts allow it. The caller must have moved that operand into
// `operands`.
bool may_overwrite(const InPlaceForm& form, c10::ArrayRef<c10::IValue> operands);

// For planning: returns the indices of the operands that the node's operator may overwrite in this
// version of PyTorch, in the order in which they are tried.
std::vector<size_t> overwritable_operands(const torch::jit::Node* node);

}  // namespace aten_recompute
