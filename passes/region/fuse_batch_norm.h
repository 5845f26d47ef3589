// Joins a batch norm with the activation that reads it.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace aten_recompute {

// Returns a copy of a region's forward in which a batch norm that only a relu, relu6 or hardtanh
// reads is one operator with it:
//
//   %n = aten::batch_norm(%x, %w, %b, ...)     %y = aten_recompute::clamped_batch_norm(
//   %y = aten::relu(%n)                    ==>          %x, %w, %b, ..., 0., None)
//
// Its kernels (rules/kernels/batch_norm.h) pass over the image fewer times, have the bits of the
// two operators, and compute the gradient from %x, so that neither %n nor %y is kept for it.
//
// A norm of what a linear layer returns stays as it is. Returns nullptr if there is no such pair.
std::shared_ptr<torch::jit::Graph> with_fused_batch_norms(const torch::jit::Graph& graph);

}  // namespace aten_recompute
