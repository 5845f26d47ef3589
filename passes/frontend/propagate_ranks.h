// Numbers of dimensions, as far as a graph's own operators tell them.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "passes/frontend/fold_attributes.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Gives tensors whose rank follows from that of others a type that says so, where LibTorch's shape
// propagation did not get that far: it does not know linear() and nested `if`s, so it loses track
// within one layer of nn.TransformerEncoder, which asks for dim() in the next. Weights of linear()
// are taken to keep the rank that `root` holds, which is returned as assumptions.
std::vector<FoldedAttribute> propagate_ranks(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const c10::intrusive_ptr<c10::ivalue::Object>& root);

}  // namespace aten_recompute
