// Runs an operator so that its result takes the memory of an operand which dies there: elementwise
// operators, and softmax. ir/memory_reuse.h has the rule.
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

// One way of computing an operator's result into the memory of an operand. Values, sizes, strides
// and dtype are those of the functional operator, without a new allocation.
struct InPlaceForm {
  size_t operand;                               // what is overwritten, counted from 0
  std::function<void(torch::jit::Stack&)> run;  // takes the operator's operands off the stack
  ReuseCondition condition;
};

// Returns the forms of `node`'s operator, the best first; none for most operators.
std::vector<InPlaceForm> in_place_forms(const torch::jit::Node* node);

// `operands` are the operator's; the one that the form overwrites was moved there. Returns true
// where nobody else can see that operand's memory and the operands' layouts allow it. form.run may
// be called only then.
bool may_overwrite(const InPlaceForm& form, c10::ArrayRef<c10::IValue> operands);

// For planning: the operands that the node's operator may overwrite in this version of PyTorch, in
// the order in which they are tried.
std::vector<size_t> overwritable_operands(const torch::jit::Node* node);

}  // namespace aten_recompute
