#include "passes/autodiff/fold_known.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <algorithm>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool is_constant(const Value* value) {
  return value->node()->kind() == c10::prim::Constant;
}

// Returns whether the node's results are the same at each call if its operands are.
bool is_function_of_constants(const Node* node) {
  const auto inputs = node->inputs();
  const auto outputs = node->outputs();
  return !is_constant(node->output(0)) && std::all_of(inputs.begin(), inputs.end(), is_constant) &&
         std::none_of(outputs.begin(), outputs.end(),
                      [](const Value* value) { return contains_tensor(*value->type()); }) &&
         !node->hasSideEffects() && !may_be_random(node) && !mutates_an_argument(node);
}

void fold(Graph& graph, Node* node) {
  const auto results = torch::jit::runNodeIfInputsAreConstant(node);
  if (!results)
    return;
  const torch::jit::WithInsertPoint guard(node);
  for (size_t i = 0; i < results->size(); ++i) {
    // The cast of None in a block that is not taken.
    if ((*results)[i].isNone() && !can_be_none(*node->output(i)->type()))
      continue;
    const auto constant = torch::jit::tryInsertConstant(graph, (*results)[i]);
    if (!constant)
      continue;
    if ((*results)[i].isNone())
      (*constant)->setType(node->output(i)->type());
    node->output(i)->replaceAllUsesWith(*constant);
  }
}

// Returns whether there is control flow whose course follows from constants.
bool fold_in_block(Graph& graph, Block* block) {
  bool is_decided = false;
  for (auto* node : block->nodes()) {
    for (auto* inner : node->blocks())
      is_decided = fold_in_block(graph, inner) || is_decided;
    if (!node->blocks().empty()) {
      const auto inputs = node->inputs();
      is_decided = is_decided || std::any_of(inputs.begin(), inputs.end(), is_constant);
    } else if (!node->outputs().empty() && is_function_of_constants(node)) {
      fold(graph, node);
    }
  }
  return is_decided;
}

}  // namespace

void fold_known(std::shared_ptr<Graph>& graph) {
  // The block that an `if` leaves behind may have more to fold.
  while (fold_in_block(*graph, graph->block()) &&
         torch::jit::ConstantPropagationImmutableTypes(graph)) {
  }
}

}  // namespace aten_recompute
