// The gradients of aten::broadcast_tensors.
#pragma once

#include "passes/autodiff/gradient_sums.h"

namespace aten_recompute {

// Whether the node is a broadcast_tensors of a list that is made here, and the result is only
// unpacked. Each result is then an operand expanded:
//
//   list = prim::ListConstruct(a, b)
//   expanded = aten::broadcast_tensors(list)
//   a', b' = prim::ListUnpack(expanded)
//
// As a list, a' and b' would both require grad where only one of them does: the prediction of a
// loss but not its target, say.
bool is_broadcast(const torch::jit::Node* node);

// Whether the node unpacks such a broadcast.
bool unpacks_broadcast(const torch::jit::Node* node);

// Marks in `sums` those results of `unpack` whose operands require grad.
void require_broadcast_results(torch::jit::Node* unpack, GradientSums& sums);

// Adds the gradients of the results of `unpack`, summed to the sizes of the operands, to `sums`.
void insert_broadcast_backward(torch::jit::Node* unpack, GradientSums& sums);

}  // namespace aten_recompute
