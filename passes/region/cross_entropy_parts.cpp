#include "passes/region/cross_entropy_parts.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_place.h"

namespace aten_recompute {

torch::jit::Node* take_cross_entropy_apart(torch::jit::Node* node) {
  if (torch::jit::constant_as<double>(node->input(5)) != 0.0)
    return nullptr;
  auto& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  const auto insert = [&](c10::Symbol kind, at::ArrayRef<torch::jit::NamedValue> arguments) {
    auto* value = graph.insert(kind, arguments);
    value->node()->copyMetadata(node);
    copy_place(node, value->node());
    return value;
  };
  auto* x = node->input(0);
  auto* is_batch = insert(c10::aten::gt, {insert(c10::aten::dim, {x}), 1});
  auto* logs =
      insert(c10::aten::log_softmax, {x, insert(c10::aten::Int, {is_batch}), c10::IValue()});
  auto* loss = insert(c10::Symbol::fromQualString("aten::nll_loss_nd"),
                      {logs, node->input(1), node->input(2), node->input(3), node->input(4)});
  node->output()->replaceAllUsesWith(loss);
  return loss->node();
}

}  // namespace aten_recompute
