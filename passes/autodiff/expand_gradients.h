// Makes gradients that a method asks for part of its region.
#pragma once

#include <memory>
#include <vector>

#include "passes/autodiff/not_differentiable.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Returns a copy of a region's forward in which each aten_recompute::gradient is replaced by the
// operators that compute it, or `forward` itself if there is none. `requires_grad[i]`: input i
// requires grad.
//
//   %e = aten::sum(aten::mul(%x, %x))                  %e = aten::sum(aten::mul(%x, %x))
//   %f = aten_recompute::gradient(%e, %x)      ==>     %1 = aten::ones_like(%e)
//                                                      %f = aten::mul(aten::expand(%1, ..), %x) ..
//
// These are operators of the forward as any other, so that differentiate() finds the gradients of
// gradients, and a plan computes them again. Those of a call without create_graph are marked with
// symbols::kWithoutGraph, and nodes whose part of the graph a call without retain_graph frees with
// symbols::kFreed. Throws NotDifferentiable where eager raises an exception, and for operators that
// cannot be differentiated twice ahead of time.
std::shared_ptr<torch::jit::Graph> expand_gradients(
    const std::shared_ptr<torch::jit::Graph>& forward, const std::vector<bool>& requires_grad);

}  // namespace aten_recompute
