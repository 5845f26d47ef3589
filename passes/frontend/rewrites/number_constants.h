// Gives the numbers of a trace their type back.
#pragma once

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// A trace holds a number that the program had as a tensor of no dimensions. In the process that
// made the trace, this tensor does not take part in the choice of a result's type, as a number does
// not. In a trace that was saved and loaded it does, and the result of a loss times 0.3 is of type
// float64. Replaces such constants where LibTorch's executor does (torch/csrc/jit/passes/
// canonicalize_graph_fuser_ops.h): in sums, differences, products and quotients of two tensors.
//
//   %c : Tensor = prim::Constant[value={0.3}]()        %c : float = prim::Constant[value=0.3]()
//   %y : Tensor = aten::mul(%x, %c)               ==>  %y : Tensor = aten::mul(%x, %c)
//
// Constants of other types than those that a trace makes of numbers stay as they are.
void number_constants(torch::jit::Graph& graph);

}  // namespace aten_recompute
