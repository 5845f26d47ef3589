// Losses whose scalar lies in memory of their inputs' size.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Copies the scalar of each loss that PyTorch reduces in the memory in which it was computed
// element by element: mse_loss keeps 16 MiB behind the mean of 4 Mi floats for as long as somebody
// holds the loss, which is during the whole backward. The copy has the same bits.
void shrink_losses(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
