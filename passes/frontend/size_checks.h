// Checks of sizes that torch.nn.functional writes as loops.
#pragma once

#include <memory>

namespace torch::jit {
struct Function;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// _verify_batch_size and _verify_spatial_size multiply sizes in a loop and raise an error where the
// product is 1. Each batch norm in training has one: of a DenseNet's nodes, a quarter. If
// `function`, whose argument was `size` and whose inlined body lies between `before` and `after`,
// is one of the two, one operator takes the place of the loop; the error stays as it was.
void shorten_size_check(const torch::jit::Function& function, torch::jit::Value* size,
                        torch::jit::Node* before, torch::jit::Node* after);

}  // namespace aten_recompute
