// Operators that gradient formulas call as `recompute.<name>`.
#pragma once

namespace aten_recompute {

// accumulate(acc, other): sum of two gradients of one value, in place where nothing else holds one of
//   them, as eager's engine does.
// accumulate_list(acc, other): the same, element by element, for gradients of a Tensor[].
// list_gradient(grad, index, length): gradient of a Tensor[] of which one element was read.
// reduce_grad(grad, size, dtype): undoes broadcasting and type promotion.
// dropout_mask, apply_dropout_mask: dropout.cpp.
// Further ones stand with the rules that use them.
void register_rule_operators();

}  // namespace aten_recompute
