// Simplifies checks of sizes that torch.nn.functional writes as loops.
#pragma once

#include <memory>

namespace torch::jit {
struct Function;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// _verify_batch_size and _verify_spatial_size multiply sizes in a loop and raise an error if the
// product is 1. Each batch norm in training has one; in a DenseNet they are a quarter of all nodes.
// If `function` is one of the two, replaces the loop by one operator; the error remains. `size` is
// the argument of the function, and its inlined body is between the nodes `before` and `after`.
void shorten_size_check(const torch::jit::Function& function, torch::jit::Value* size,
                        torch::jit::Node* before, torch::jit::Node* after);

}  // namespace aten_recompute
