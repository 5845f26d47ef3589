#include "passes/autodiff/operand_views.h"

#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "ir/node_traits.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

const auto kOperandView = c10::Symbol::attr("operand_view");

Value* view_of(Graph& graph, Value* operand) {
  const auto* made_by = operand->node();
  if (!is_tensor_type(*operand->type()) || made_by->kind() == c10::prim::Constant ||
      made_by->hasAttribute(kOperandView))
    return operand;
  auto* view = graph.insert(c10::aten::alias, {operand});
  view->node()->i_(kOperandView, 1);
  return view;
}

// Returns the operand with views of the tensors that it is, or is a list of.
Value* with_views(Graph& graph, Value* operand) {
  if (operand->node()->kind() != c10::prim::ListConstruct)
    return view_of(graph, operand);
  std::vector<Value*> elements;
  for (auto* element : operand->node()->inputs())
    elements.push_back(view_of(graph, element));
  if (operand->node()->inputs().vec() == elements)
    return operand;
  auto* list = graph.insertNode(graph.create(c10::prim::ListConstruct, elements));
  return list->output()->setType(operand->type());
}

}  // namespace

void insert_operand_views(Graph& graph, const Node* end) {
  for (auto* node : graph.nodes()) {
    if (node == end)
      return;
    const auto* rule = node->maybeSchema() == nullptr ? nullptr : find_rule(node);
    if (rule == nullptr)
      continue;
    constexpr size_t kWeight = 1;
    const bool shares_weight =
        node->kind() == c10::aten::linear && node->input(kWeight)->uses().size() > 1;
    const torch::jit::WithInsertPoint guard(node);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (rule->gradients_in_reverse || (shares_weight && i == kWeight))
        node->replaceInput(i, with_views(graph, node->input(i)));
    }
  }
}

void remove_operand_views(torch::jit::Block* block) {
  std::vector<Node*> views;
  for_each_node(block, [&](Node* node) {
    if (node->hasAttribute(kOperandView))
      views.push_back(node);
  });
  for (auto* view : views) {
    view->output()->replaceAllUsesWith(view->input());
    view->destroy();
  }
}

}  // namespace aten_recompute
