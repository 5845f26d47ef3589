// Finds the shape function of an operator, among those of the program and of this library.
#pragma once

#include "rules/shapes.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Returns the shape function of the node's operator: the one that a program registered
// (include/aten_recompute/register_shape.h), or that of this library for an operator that has no
// kernel for meta tensors without Python, or of which the CPU's kernel returns something else.
// Returns an empty function where there is none.
ShapeFunction shape_function(const torch::jit::Node* node);

}  // namespace aten_recompute
