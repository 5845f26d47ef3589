// Operators that gradient formulas call as `recompute.<name>`.
#pragma once

namespace aten_recompute {

// accumulate(acc, other): sum of two gradients of one value, in place where nothing else holds one
// of
//   them, as eager's engine does.
// accumulate_list(acc, other): the same, element by element, for gradients of a Tensor[].
// optional_list(list): the same list, of a type whose elements may be missing.
// list_gradient(grad, index, length): gradient of a Tensor[] of which one element was read.
// reduce_grad(grad, size, dtype): undoes broadcasting and type promotion.
// layout(tensor), stand_in(layout): rules/kernels/stand_in.h.
// Further ones stand with the rules that use them, in <family>_operators.cpp.
void register_rule_operators();

void register_elementwise_operators();
void register_matrix_operators();
void register_convolution_operators();
void register_normalization_operators();
void register_dropout_operators();
void register_loss_operators();

// Called by it, each in <family>_operators.cpp.
void register_shape_operators();
void register_indexing_operators();
void register_reduction_operators();
void register_pooling_operators();
void register_attention_operators();
void register_bits_operators();
void register_user_rule_operators();

}  // namespace aten_recompute
