#include "rules/find_shape.h"

#include <torch/csrc/jit/ir/ir.h>

#include "rules/user_shapes.h"

namespace aten_recompute {

ShapeFunction shape_function(const torch::jit::Node* node) {
  if (auto function = user_shape_function(node))
    return function;
  return node->maybeSchema() == nullptr ? nullptr : shape_function_of(node->schema());
}

}  // namespace aten_recompute
