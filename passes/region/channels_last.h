// Lays images out with their channels last in memory between convolutions.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Returns a copy of a region's forward in which convolutions, and the operators between them that
// keep the order of the elements in memory (Fact::kKeepsChannelsLast), work on tensors with their
// channels last. Where such a stretch begins, the copy has aten_recompute::channels_last, and where
// it ends aten_recompute::channels_first; both return their argument where its layout is right
// already, and their gradients have the layout of their argument. Outputs keep their layout.
//
//   %y = aten::conv2d(%x, %w, ...)             %x_last = aten_recompute::channels_last(%x)
//   %z = aten::relu(%y)                        %y = aten::conv2d(%x_last, %w, ...)
//   %f = aten::flatten(%z, %1, %3)      ==>    %z = aten::relu(%y)
//   return (%f)                                %z_first = aten_recompute::channels_first(%z)
//                                              %f = aten::flatten(%z_first, %1, %3)
//
// oneDNN's kernels read such images as they are, where they copy others into a blocked layout and
// back. They add in another order, so results differ from eager PyTorch's in the last bits.
//
// What eager PyTorch may lay out in another way than in the order of its dimensions is left alone,
// and what is computed from it. The inputs of the graph have to be in order (are_in_order()).
//
// Returns nullptr if nothing would change, or if the graph writes to a tensor of a stretch.
std::shared_ptr<torch::jit::Graph> with_channels_last(const torch::jit::Graph& graph);

// Returns whether the dimensions of all tensors lie in memory in their order. Otherwise the program
// has chosen its layouts, and eager PyTorch passes them on to results.
bool are_in_order(const std::vector<c10::IValue>& inputs);

}  // namespace aten_recompute
