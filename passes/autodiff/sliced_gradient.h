// The gradient of a stretch that runs slice by slice is such a stretch, too: each slice computes
// its inner values again and then its gradients.
#pragma once

#include "passes/autodiff/backward_steps.h"
#include "passes/autodiff/gradient_sums.h"

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Marks in `sums` the results of an aten_recompute::sliced (runtime/sliced.h) that require grad.
void require_sliced_results(torch::jit::Node* node, GradientSums& sums);

// Inserts the gradients of the node's operands and adds them to `sums`: those of sliced operands
// are sliced in the same dimension, those of other operands are summed over the slices. Throws
// NotDifferentiable where the stretch cannot be differentiated.
void insert_sliced_gradient(torch::jit::Node* node, Purpose purpose, GradientSums& sums);

}  // namespace aten_recompute
