// Gives traced convolutions the operators that the program called.
#pragma once

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// A trace has the operator that conv1d() and its like are composed of, for which autocast on the
// CPU has no kernel: under autocast, traced convolutions would not be cast, as those of eager
// PyTorch and of scripted modules are. Replaces them where their dimensions are known.
//
//   %stride = prim::ListConstruct(%two, %two)    %stride = prim::ListConstruct(%two, %two)
//   %y = aten::_convolution(%x, %w, %b,     ==>  %y = aten::conv2d(%x, %w, %b, %stride, ...)
//                           %stride, ...)
//
// Transposed ones become conv_transpose2d; those whose padding is a word become conv2d, too.
void restore_convolutions(torch::jit::Graph& graph);

}  // namespace aten_recompute
