#include "passes/shrink_losses.h"

#include <ATen/core/Reduction.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "passes/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// Whether the node is one of these losses, reduced. Which are was found by looking at the memory
// behind the results of all (aten/src/ATen/native/Loss.cpp and BinaryOps.cpp).
bool keeps_elements(const Node* node) {
  static const std::unordered_map<std::string, size_t> reductions = {
      {"aten::mse_loss", 2},
      {"aten::smooth_l1_loss", 2},
      {"aten::soft_margin_loss", 2},
      {"aten::binary_cross_entropy", 3},
  };
  const auto found = reductions.find(node->kind().toQualString());
  if (found == reductions.end())
    return false;
  const auto reduction = torch::jit::constant_as<int64_t>(node->input(found->second));
  return reduction && *reduction != at::Reduction::None;
}

}  // namespace

void shrink_losses(const std::shared_ptr<torch::jit::Graph>& graph) {
  std::vector<Node*> losses;
  for_each_node(graph->block(), [&](Node* node) {
    if (keeps_elements(node))
      losses.push_back(node);
  });
  for (auto* node : losses) {
    const torch::jit::WithInsertPoint guard(node->next());
    auto* copy = graph->insert(c10::aten::clone, {node->output()});
    copy->node()->setSourceRange(node->sourceRange());
    node->output()->replaceAllUsesAfterNodeWith(copy->node(), copy);
  }
}

}  // namespace aten_recompute
