// Separates the joint graph into a forward graph and a backward graph.
#pragma once

#include "ir/joint_graph.h"

namespace torch::jit {
struct Gradient;
}  // namespace torch::jit

namespace aten_recompute {

// Returns LibTorch's own description of a differentiated graph (torch/csrc/jit/runtime/autodiff.h).
// The joint graph is not changed. The outputs of `f` are the region's outputs, then the captured
// values. splice() must have run, so that the backward reads only what is kept.
torch::jit::Gradient extract(const JointGraph& joint);

}  // namespace aten_recompute
