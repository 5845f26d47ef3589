// Leaves that a method makes of what it has computed, and returns.
//
// The caller may ask for the gradient of such a leaf, which the regions that compute with it make.
// They run before the leaf is handed out, so they take a place for it as an input:
//
//   leaf_place     makes the place: a leaf without elements
//   require_grad   has the gradient of its result go to the place (inner_gradient.h)
//   return_leaf    puts what has been computed into the place, which then is the leaf
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/interned_strings.h>

namespace aten_recompute {

// aten_recompute::leaf_place(int number) -> Tensor. `number` tells the leaves of a method apart.
inline const c10::Symbol kLeafPlace = c10::Symbol::fromQualString("aten_recompute::leaf_place");

// aten_recompute::return_leaf(Tensor(a) content, Tensor place) -> Tensor(a). `content` requires no
// gradient.
inline const c10::Symbol kReturnLeaf = c10::Symbol::fromQualString("aten_recompute::return_leaf");

// Returns another name of the tensor, whose gradient goes to the place.
at::Tensor lead_gradient_to(const at::Tensor& tensor, const at::Tensor& place);

// Registers the operators (register/operators.cpp).
void register_returned_leaf_operators();

}  // namespace aten_recompute
