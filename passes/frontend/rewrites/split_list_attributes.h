// Reads lists of tensors that are attributes element by element.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "passes/frontend/rewrites/fold_attributes.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Gives operators that take a list of tensors which is an attribute the list's elements instead. A
// region cannot take a list of tensors from outside, but it can take tensors. nn.LSTM passes its
// weights in this way.
//
//   %list : Tensor[] = prim::GetAttr[name="_flat_weights"](%rnn)
//   %y : Tensor, %h : Tensor = aten::gru(%x, %h0, %list, ...)
//
// becomes
//
//   %list : Tensor[] = prim::GetAttr[name="_flat_weights"](%rnn)
//   %a : Tensor = aten::__getitem__(%list, %0)
//   %b : Tensor = aten::__getitem__(%list, %1)
//   %own : Tensor[] = prim::ListConstruct(%a, %b)
//   %y : Tensor, %h : Tensor = aten::gru(%x, %h0, %own, ...)
//
// A list that the graph sets or changes remains as it is. Returns the assumptions about the lengths
// of the lists in `root`, the module.
std::vector<FoldedAttribute> split_list_attributes(
    const std::shared_ptr<torch::jit::Graph>& graph,
    const c10::intrusive_ptr<c10::ivalue::Object>& root);

}  // namespace aten_recompute
