#include "passes/fold_identity.h"

#include <torch/csrc/jit/ir/ir.h>

#include <optional>

#include "passes/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
namespace aten = c10::aten;

std::optional<bool> are_identical(const Node* node) {
  const auto* a = node->input(0);
  const auto* b = node->input(1);
  for (const auto* value : {a, b}) {
    if (value->type()->kind() != c10::TypeKind::TensorType)
      return std::nullopt;
  }
  if (a == b)
    return true;
  if (makes_new_tensor(a) || makes_new_tensor(b))
    return false;
  return std::nullopt;
}

bool fold(Block* block, Graph& graph) {
  bool folded = false;
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    auto* node = *it++;
    for (auto* inner : node->blocks())
      folded |= fold(inner, graph);
    if (node->kind() != aten::__is__ && node->kind() != aten::__isnot__)
      continue;
    const auto identical = are_identical(node);
    if (!identical)
      continue;
    const torch::jit::WithInsertPoint guard(node);
    node->output()->replaceAllUsesWith(
        graph.insertConstant(*identical == (node->kind() == aten::__is__)));
    node->destroy();
    folded = true;
  }
  return folded;
}

}  // namespace

bool fold_identity(const std::shared_ptr<Graph>& graph) {
  return fold(graph->block(), *graph);
}

}  // namespace aten_recompute
