// Adds the gradients that several calls have for a parameter that autocast casts once for all.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "backend/autograd/compiled_region.h"

namespace aten_recompute {

// Returns where the gradients of a region's inputs go: for each of Gradient::df_output_vjps, what
// `edges` has, or a node before that where calls in one block of autocast share a cast.
//
// Eager PyTorch casts a parameter once in a block, so that the gradients of all calls that read it
// are added in the lower precision, before the sum becomes one in float32. A region has a cast of
// its own; its gradient in float32 is one in the lower precision exactly. The node adds the
// gradients of the calls as eager does. `inputs` are those of the region, and it runs on the thread
// of the call, before autocast is switched off for the region.
std::vector<torch::autograd::Edge> share_casts(const CompiledRegion& compiled_region,
                                               const std::vector<c10::IValue>& inputs,
                                               std::vector<torch::autograd::Edge> edges);

// Returns the node that adds up the gradients for a tensor, if `target` is one of share_casts(), or
// `target` itself.
torch::autograd::Node& receiver_of(torch::autograd::Node& target);

}  // namespace aten_recompute
