// Computes at compile time what follows from constants in a graph without writes.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces numbers, bools and lists of them that follow from constants by constants, and each `if`
// with a constant condition by the block that it takes. Tensors are left as they are. LibTorch's
// constant propagation does the same; its alias analysis takes longer than all else that
// differentiate() does, and a region has no writes to find.
void fold_known(std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
