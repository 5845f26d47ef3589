// Folds conditions that follow from the graph, and that LibTorch's passes leave.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces these conditions by constants, and returns whether there was any:
//
//   a is b, a is not b   for tensors: they are the same if they are one value of the graph, and
//                        different if an operator makes one of them anew. Two different inputs of
//                        the method are left alone, because a caller may pass one tensor twice
//   len(string) > 0      is true if every branch gives a string that cannot be empty: a constant,
//                        or a format with literal text
//
// nn.MultiheadAttention uses the former to detect self-attention. For the latter, it stores the
// reason why it cannot take its fast path in a string. Which reason it is may depend on types, but
// not whether there is one.
bool fold_conditions(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
