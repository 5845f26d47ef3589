// Moves what only checks read into the checks.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Moves tuples of numbers that are read only in branches of an `if` that computes nothing into
// these branches. A region may contain an `if` that only raises, but no tuple from outside of it.
// nn.LSTM puts the expected sizes into the message of an error in this way.
//
//   %sizes : (int, int) = prim::TupleConstruct(%a, %b)
//   prim::If(%wrong)                                          prim::If(%wrong)
//     block0():                                                 block0():
//       %text : str = aten::format(%message, %sizes)  ==>         %sizes = prim::TupleConstruct(..)
//       prim::RaiseException(%text, %class)                       %text = aten::format(..)
void sink_into_checks(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
