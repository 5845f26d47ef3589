// Adds the gradients that several calls have for a parameter that autocast casts once for all.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstddef>
#include <map>
#include <vector>

#include "backend/autograd/compiled_region.h"

namespace aten_recompute {

// Where the outputs of a region's backward go.
struct SummandEdges {
  std::vector<torch::autograd::Edge> edges;  // of each output
  // By output: an edge without a gradient, whose node may not run before that output has left.
  std::map<size_t, torch::autograd::Edge> gates;
};

// Returns for each output of a region's backward the edge of the gradient that it is a summand of,
// or one to a node before it where calls in one block of autocast share a cast. `edges` has those
// of Gradient::df_output_vjps.
//
// Eager PyTorch casts a parameter once in a block, so that the gradients of all calls that read the
// cast are added in the lower precision, before the sum becomes one in float32. A region has a cast
// of its own; its gradient in float32 is one in the lower precision exactly. The node adds the
// gradients of the calls as eager does. The call that makes the cast may have read the parameter
// itself before that, so the node hands on these gradients behind the sum; the sum follows all that
// later calls have read. `inputs` are those of the region, and it runs on the thread of the call,
// before autocast is switched off for the region.
SummandEdges share_casts(const CompiledRegion& compiled_region,
                         const std::vector<c10::IValue>& inputs,
                         const std::vector<torch::autograd::Edge>& edges);

// Notes that a call without gradients has read these inputs: autocast keeps its casts.
void note_casts_without_gradient(const std::vector<c10::IValue>& inputs);

// Returns the node that adds up the gradients for a tensor, if `target` is one of share_casts(), or
// `target` itself.
torch::autograd::Node& receiver_of(torch::autograd::Node& target);

}  // namespace aten_recompute
