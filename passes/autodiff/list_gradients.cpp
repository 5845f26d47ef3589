#include "passes/autodiff/list_gradients.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/symbols.h"
#include "passes/autodiff/not_differentiable.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns whether an operator that reads the list takes the gradients of its elements from the last
// to the first.
bool is_read_in_reverse(const Value* list) {
  const auto& uses = list->uses();
  return std::any_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    const auto* rule = find_rule(use.user);
    return rule != nullptr && rule->gradients_in_reverse;
  });
}

void insert_construct_backward(Node* construct, GradientSums& sums) {
  auto* gradient = sums.gradient_of(construct->output());
  if (gradient == nullptr)
    return;
  if (!has_tensor_elements(gradient))
    throw NotDifferentiable("a list of tensors is built in one place and indexed in another");
  const bool in_reverse = is_read_in_reverse(construct->output());
  auto* made_by = gradient->node();
  if (made_by->kind() == prim::ListConstruct &&
      made_by->inputs().size() == construct->inputs().size()) {
    sums.add_each(construct->inputs(), made_by->inputs(), in_reverse);
    return;
  }
  auto& graph = *construct->owningGraph();
  auto* unpack = graph.insertNode(graph.createListUnpack(gradient, construct->inputs().size()));
  sums.add_each(construct->inputs(), unpack->outputs(), in_reverse);
}

void insert_unpack_backward(Node* unpack, GradientSums& sums) {
  if (auto* list = sums.insert_list_of(unpack->outputs()))
    sums.add(unpack->input(), list);
}

void insert_item_backward(Node* item, GradientSums& sums) {
  auto* gradient = sums.gradient_of(item->output());
  if (gradient == nullptr)
    return;
  auto& graph = *item->owningGraph();
  auto* length = graph.insert(c10::aten::len, {item->input(0)});
  auto* list =
      graph.insertNode(graph.create(symbols::kListGradient, {gradient, item->input(1), length}, 1));
  list->output()->setType(c10::ListType::create(c10::OptionalType::ofTensor()));
  sums.add(item->input(0), list->output());
}

}  // namespace

bool is_list_operator(const Node* node) {
  return node->kind() == prim::ListConstruct || node->kind() == prim::ListUnpack ||
         (node->kind() == c10::aten::__getitem__ && is_list_of_tensors(node->input(0)));
}

void insert_list_backward(Node* node, GradientSums& sums) {
  if (node->kind() == prim::ListConstruct)
    insert_construct_backward(node, sums);
  else if (node->kind() == prim::ListUnpack)
    insert_unpack_backward(node, sums);
  else
    insert_item_backward(node, sums);
}

}  // namespace aten_recompute
