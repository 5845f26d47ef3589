// Infers ranks (numbers of dimensions) of tensors from a graph's operators.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "passes/frontend/rewrites/fold_attributes.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Gives tensors whose rank follows from that of others a type with this rank, where LibTorch's
// shape propagation did not. It does not know linear() or nested `if`s, so it stops within one
// layer of nn.TransformerEncoder, and the next layer calls dim(). Weights of linear() are assumed
// to keep the rank that they have in `root`, the module. Returns these assumptions.
std::vector<FoldedAttribute> propagate_ranks(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const c10::intrusive_ptr<c10::ivalue::Object>& root);

}  // namespace aten_recompute
