// Recognizes operators whose results a profile on zeros would get wrong, because data decide their
// sizes.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Returns whether the elements of its operands decide sizes of the node's results, or numbers that
// it returns: nonzero, masked indexing, item(), an `if` on a tensor, or an unknown operator of
// another library. `operands` holds one value per input of the node.
bool depends_on_data(const torch::jit::Node* node, const std::vector<c10::IValue>& operands);

// Returns whether this is possible for the node's operator, whatever its operands are.
bool has_sizes_of_data(const torch::jit::Node* node);

}  // namespace aten_recompute
