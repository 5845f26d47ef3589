// Makes the casts of autocast operators of a region.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/autocast.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Types of casts, by the input of the region that is cast.
using SharedCasts = std::map<size_t, c10::ScalarType>;

struct WithCasts {
  std::shared_ptr<torch::jit::Graph> graph;
  // The inputs of which the region makes one cast, which autocast's cache keeps beyond the region:
  // readers in the same block of autocast share it in eager PyTorch. Others read the input as it
  // is.
  SharedCasts shared;
};

// Returns a copy of a region's forward in which operands are cast where the dispatcher would cast
// them under autocast with these settings:
//
//                                             %w_1 = aten::to(%w, %bfloat16, ...)
//   %y = aten::linear(%x, %w, %b)             %x_1 = aten::to(%x, %bfloat16, ...)
//   %z = aten::linear(%y, %w, %b)      ==>    %b_1 = aten::to(%b, %bfloat16, ...)
//                                             %y = aten::linear(%x_1, %w_1, %b_1)
//                                             %z = aten::linear(%y, %w_1, %b_1)
//
// The dispatcher's own kernels are asked what they cast (rules/autocast_probe.h). A leaf
// that requires a gradient, as a parameter, is cast once, as autocast's cache does; so gradients of
// its casts are added in the lower precision, as in eager PyTorch. Blocks of autocast in the graph
// (passes/frontend/rewrites/autocast_blocks.h) are removed, after they have said what is cast. The
// result is for a run with autocast switched off.
//
// `inputs` are those of the region, which runs on them, without effects, where data decide sizes;
// `device` says where they lie if they are meta tensors. Throws NotDifferentiable where the casts
// are not known: an operator is composed of others that cast, or would have to run on meta tensors.
WithCasts insert_casts(const torch::jit::Graph& forward, const std::vector<c10::IValue>& inputs,
                       const AutocastState& autocast, std::optional<c10::Device> device = {});

// Throws NotDifferentiable if eager PyTorch would cast in a gradient that the method asks for:
// autograd.grad() runs under the autocast around it. `forward` is what insert_casts() returned; the
// other arguments are those of insert_casts() and expand_gradients().
void require_uncast_gradients(const std::shared_ptr<torch::jit::Graph>& forward,
                              const std::vector<bool>& requires_grad,
                              const std::vector<c10::IValue>& inputs, const AutocastState& autocast,
                              std::optional<c10::Device> device = {});

}  // namespace aten_recompute
