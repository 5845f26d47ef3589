// Operators whose results a profile on zeros would get wrong.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Sizes of the node's results, or the numbers that it returns, follow from what its operands hold:
// nonzero, masked indexing, item(), an `if` on a tensor, an operator of another library of which
// nothing is known.
bool depends_on_data(const torch::jit::Node* node, const std::vector<c10::IValue>& operands);

// The same of the operator alone, whatever its operands are.
bool has_sizes_of_data(const torch::jit::Node* node);

}  // namespace aten_recompute
