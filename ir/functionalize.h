// In-place operators on the method's own values become functional ones.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces  y = add_(x, z)  by  y = to(add(x, z), dtype(x))  and later reads of x by y, where x was
// made by an operator of the same block and nothing else can see its memory before the last write
// to it; views and lists that are made of it afterwards are made of y. The cast (for
// operators with a second tensor; it returns its input where nothing changes) keeps what type
// promotion would change. LibTorch's RemoveTensorMutation does the same only where it can move the
// two operators together, which a batch norm's checks in between prevent.
//
// What it leaves: writes to inputs, attributes, views and values that another name refers to.
void functionalize(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
