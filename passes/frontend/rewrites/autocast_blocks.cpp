#include "passes/frontend/rewrites/autocast_blocks.h"

#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns whether the value is a torch.autocast, torch.cuda.amp.autocast or torch.cpu.amp.autocast.
bool is_autocast(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  return type != nullptr && type->name() && type->name()->name() == "autocast" &&
         type->hasAttribute("device") && type->hasAttribute("_enabled") &&
         type->hasAttribute("fast_dtype");
}

void replace_enter(Node* node, Graph& graph) {
  auto* object = node->input();
  const torch::jit::WithInsertPoint guard(node);
  std::vector<Value*> arguments;
  for (const char* name : {"device", "_enabled", "fast_dtype"})
    arguments.push_back(graph.insertGetAttr(object, name));
  graph.insertNode(graph.create(symbols::kEnterAutocast, arguments, 0))->copyMetadata(node);
  node->output()->replaceAllUsesWith(object);
  node->destroy();
}

void replace_exit(Node* node, Graph& graph) {
  if (node->hasUses())
    return;
  const torch::jit::WithInsertPoint guard(node);
  graph.insertNode(graph.create(symbols::kExitAutocast, 0))->copyMetadata(node);
  node->destroy();
}

}  // namespace

void autocast_blocks(Graph& graph) {
  std::vector<Node*> found;
  for_each_node(graph.block(), [&](Node* node) {
    if ((node->kind() == prim::Enter || node->kind() == prim::Exit) && is_autocast(node->input(0)))
      found.push_back(node);
  });
  for (auto* node : found) {
    if (node->kind() == prim::Enter)
      replace_enter(node, graph);
    else
      replace_exit(node, graph);
  }
}

}  // namespace aten_recompute
