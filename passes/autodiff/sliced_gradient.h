// The gradient of a stretch that runs slice by slice is such a stretch, too: each slice computes
// its inner values again and then its gradients.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "passes/autodiff/gradient_sums.h"

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// The gradients of a stretch. The graph takes the operands of the stretch and then the gradients of
// results; it returns gradients of operands.
struct StretchGradients {
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<size_t> results{};   // whose gradients it takes
  std::vector<size_t> operands{};  // whose gradients it returns
};

// Differentiates a stretch. `requires_grad` has one entry per operand, `has_gradient` one per
// result.
using DifferentiateStretch = std::function<StretchGradients(
    const std::shared_ptr<torch::jit::Graph>& stretch, const std::vector<bool>& requires_grad,
    const std::vector<bool>& has_gradient)>;

// Marks in `sums` the results of an aten_recompute::sliced (runtime/sliced.h) that require grad.
void require_sliced_results(torch::jit::Node* node, GradientSums& sums);

// Inserts the gradients of the node's operands and adds them to `sums`: those of sliced operands
// are sliced in the same dimension, those of other operands are summed over the slices. Throws what
// `differentiate_stretch` throws.
void insert_sliced_gradient(torch::jit::Node* node, GradientSums& sums,
                            const DifferentiateStretch& differentiate_stretch);

}  // namespace aten_recompute
