// Takes a cross entropy apart, where autocast casts between its parts.
//
//   loss = cross_entropy_loss(x, target, weight, reduction, ignore_index, 0.0)
//
// becomes what ATen composes it of:
//
//   logs = log_softmax(x, 1 if x.dim() > 1 else 0, None)
//   loss = nll_loss_nd(logs, target, weight, reduction, ignore_index)
#pragma once

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Inserts the parts before the node, whose target holds classes, and puts the second in its place.
// Returns that one. Returns nullptr, and changes nothing, unless a constant says that labels are
// not smoothed: ATen then has other parts.
torch::jit::Node* take_cross_entropy_apart(torch::jit::Node* node);

}  // namespace aten_recompute
