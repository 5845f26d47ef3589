// The gradients of lists of tensors: making, unpacking and indexing them.
#pragma once

#include "passes/autodiff/gradient_sums.h"

namespace aten_recompute {

// Whether the node makes, unpacks or indexes a list of tensors.
bool is_list_operator(const torch::jit::Node* node);

// Inserts what computes the gradients of the node's operands, and adds them to `sums`. Does nothing
// where no output of the node has a gradient. The node is one for which is_list_operator() holds.
// Throws NotDifferentiable where the list is built by one node and indexed by another.
void insert_list_backward(torch::jit::Node* node, GradientSums& sums);

}  // namespace aten_recompute
