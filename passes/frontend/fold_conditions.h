// Questions of a program that its graph can answer, and LibTorch's passes do not.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces by a constant, and returns whether there was any:
//
//   a is b, a is not b   of tensors: True for one and the same value, False where one of the two is
//                        the new result of an operator. Two different inputs of the method are left
//                        alone: a caller may pass one tensor twice
//   len(text) > 0        True where every way to `text` ends in a string that is not empty: a
//                        constant, or a format with words in it
//
// nn.MultiheadAttention asks the first to know self-attention. It keeps why it does not take its
// fast path in a text, and asks the second; which reason it is may depend on types, that there is
// one does not.
bool fold_conditions(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
