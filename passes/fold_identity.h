// `a is b` between tensors, where the graph knows.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces aten::__is__ and aten::__isnot__ of two tensors by a constant: True for one and the same
// value, False where one of the two is the new result of an operator. nn.MultiheadAttention asks so
// whether it is self-attention. Two different inputs of the method are left alone: a caller may
// pass one tensor twice. Returns whether there was anything to replace.
bool fold_identity(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
