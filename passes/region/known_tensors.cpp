#include "passes/region/known_tensors.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

namespace {

bool is_tensor_list(const Value* value) {
  return value->type()->kind() == c10::TypeKind::ListType && contains_tensor(*value->type());
}

}  // namespace

const std::vector<int64_t>* sizes_of(const Value* value, const KnownTensors& known) {
  const auto found = known.find(value->unique());
  return found == known.end() || found->second.empty() ? nullptr : &found->second[0].sizes;
}

std::vector<Value*> flat_operands(const Node* node) {
  std::vector<Value*> operands;
  for (auto* input : const_cast<Node*>(node)->inputs()) {
    if (is_tensor_list(input) && input->node()->kind() == c10::prim::ListConstruct) {
      const auto elements = input->node()->inputs();
      operands.insert(operands.end(), elements.begin(), elements.end());
    } else {
      operands.push_back(input);
    }
  }
  return operands;
}

}  // namespace aten_recompute
