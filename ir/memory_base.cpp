#include "ir/memory_base.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

bool shares_memory_with_input(const Node* node, Aliasing aliasing) {
  if (node->inputs().empty())
    return false;
  const bool is_followed = aliasing == Aliasing::kAll || node->kind().is_aten() || is_cast(node);
  return node->kind() == c10::prim::ListUnpack || node->kind() == c10::aten::__getitem__ ||
         mutates_an_argument(node) || (is_followed && may_alias_an_argument(node));
}

const Value* memory_base(const Value* value, Aliasing aliasing) {
  while (shares_memory_with_input(value->node(), aliasing))
    value = value->node()->input(0);
  return value;
}

Value* memory_base(Value* value, Aliasing aliasing) {
  return const_cast<Value*>(memory_base(static_cast<const Value*>(value), aliasing));
}

}  // namespace aten_recompute
