// Operators that gradient formulas call as `recompute.<name>`.
#pragma once

namespace aten_recompute {

// Registers all operators of this folder, by calling the functions below, and
//   accumulate(acc, other)              the sum of two gradients of one value; like eager's engine,
//                                       it is computed in place if nothing else holds one of them
//   accumulate_list(acc, other)         accumulate() for each element of gradients of a Tensor[]
//   optional_list(list)                 the list as List[Optional[Tensor]]
//   list_gradient(grad, index, length)  the gradient of a Tensor[] of which one element was read
//   reduce_grad(grad, size, dtype)      undoes broadcasting and type promotion
//   layout(tensor), stand_in(layout)    rules/kernels/stand_in.h
void register_rule_operators();

// Each is defined in the file of its operator family.
void register_elementwise_operators();
void register_matrix_operators();
void register_contraction_operators();
void register_faster_operators();
void register_convolution_operators();
void register_normalization_operators();
void register_batch_norm_operators();
void register_dropout_operators();
void register_loss_operators();
void register_shape_operators();
void register_part_operators();
void register_indexing_operators();
void register_reduction_operators();
void register_pooling_operators();
void register_attention_operators();
void register_recurrent_operators();
void register_spectral_operators();
void register_distance_operators();
void register_bits_operators();
void register_user_rule_operators();  // rules/user_rules.cpp

}  // namespace aten_recompute
