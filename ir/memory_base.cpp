#include "ir/memory_base.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

bool shares_memory_with_input(const Node* node) {
  return !node->inputs().empty() &&
         (node->kind() == c10::prim::ListUnpack || node->kind() == c10::aten::__getitem__ ||
          may_alias_an_argument(node) || mutates_an_argument(node));
}

const Value* memory_base(const Value* value) {
  while (shares_memory_with_input(value->node()))
    value = value->node()->input(0);
  return value;
}

Value* memory_base(Value* value) {
  return const_cast<Value*>(memory_base(static_cast<const Value*>(value)));
}

}  // namespace aten_recompute
