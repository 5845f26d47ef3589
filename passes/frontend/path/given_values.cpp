#include "passes/frontend/path/given_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

namespace {

// Returns the node that made the value, or the container from which it is read.
const Node* origin_of(const Value* value) {
  while (value->node()->kind() == c10::aten::__getitem__ ||
         value->node()->kind() == prim::TupleIndex || value->node()->kind() == prim::unchecked_cast)
    value = value->node()->input(0);
  return value->node();
}

}  // namespace

bool is_read_of_input(const Value* value) {
  return origin_of(value)->kind() == prim::Param;
}

bool is_given(const Value* value) {
  const auto* origin = origin_of(value);
  return origin->kind() == prim::Param || origin->kind() == prim::GetAttr;
}

bool may_become_none(const Item& item) {
  auto* symbol = item.container == nullptr ? item.symbol : item.container->source;
  return symbol != nullptr && symbol->node()->maybeSchema() != nullptr &&
         can_be_none(*symbol->type()) && !is_given(symbol);
}

}  // namespace aten_recompute
