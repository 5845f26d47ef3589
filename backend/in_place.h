// Elementwise operators that overwrite an operand which dies there.
#pragma once

#include <ATen/core/stack.h>

#include <functional>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// How `node` computes into its first operand, or nothing where its operator has no such form. To be
// called only where may_overwrite_first_operand() says so: then values, sizes, strides and dtype
// are those of the functional operator, without a new allocation.
std::function<void(torch::jit::Stack&)> in_place_form(const torch::jit::Node* node);

// `operands` are the operator's, the first one moved there. True where nobody else can see the
// first operand's memory and the result has its shape, strides and dtype.
bool may_overwrite_first_operand(c10::ArrayRef<c10::IValue> operands);

}  // namespace aten_recompute
