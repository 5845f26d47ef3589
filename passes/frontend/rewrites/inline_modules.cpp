#include "passes/frontend/rewrites/inline_modules.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <string>

#include "ir/symbols.h"
#include "passes/frontend/rewrites/autocast_blocks.h"
#include "passes/frontend/rewrites/size_checks.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns "blocks.3" for GetAttr[3](GetAttr[blocks](%self)).
std::string module_path(const Value* value) {
  std::string path;
  while (value->node()->kind() == prim::GetAttr) {
    const auto& name = value->node()->s(c10::attr::name);
    path = path.empty() ? name : name + "." + path;
    value = value->node()->input(0);
  }
  return path;
}

bool can_carry_attributes(const Node* node) {
  // Constants have their value in attributes, and constant pooling compares all attributes.
  return node->kind() != prim::Constant && node->kind() != prim::GetAttr;
}

void tag(Block* block, const std::string& path);

void tag(Node* node, const std::string& path) {
  if (can_carry_attributes(node) && !node->hasAttribute(symbols::kModulePath))
    node->s_(symbols::kModulePath, path);
  for (auto* block : node->blocks())
    tag(block, path);
}

void tag(Block* block, const std::string& path) {
  for (auto* node : block->nodes())
    tag(node, path);
}

// Returns the function that the node calls; nullptr if there is none that can be inlined.
torch::jit::GraphFunction* callee(Node* node) {
  if (node->kind() == prim::CallFunction)
    return torch::jit::tryToGraphFunction(node);
  if (node->kind() != prim::CallMethod)
    return nullptr;
  auto class_type = node->input(0)->type()->cast<c10::ClassType>();
  if (class_type == nullptr)
    return nullptr;
  return torch::jit::tryToGraphFunction(class_type->getMethod(node->s(c10::attr::name)));
}

void inline_calls(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it;
    auto* function = callee(node);
    if (function == nullptr) {
      for (auto* inner : node->blocks())
        inline_calls(inner);
      ++it;
      continue;
    }
    std::string path;
    if (node->kind() == prim::CallMethod)
      path = module_path(node->input(0));
    else if (node->hasAttribute(symbols::kModulePath))
      path = node->s(symbols::kModulePath);
    if (node->kind() == prim::CallMethod)
      keep_cache_enabled(node, function->getSchema());
    Node* before = node->prev();
    Node* after = node->next();
    Value* argument = nullptr;
    if (node->kind() == prim::CallFunction) {
      node->removeInput(0);  // the function itself
      argument = node->inputs().empty() ? nullptr : node->input(0);
    }
    // LibTorch's name of the flag is misleading: true inserts the optimized graph, which is inlined
    // already.
    torch::jit::inlineCallTo(node, function, /*inline_optimized_graph=*/false);
    if (argument != nullptr)
      shorten_size_check(*function, argument, before, after);
    for (auto* added = before->next(); added != after; added = added->next())
      tag(added, path);
    // The inlined nodes may contain calls, so continue with the first of them.
    it = before->next()->iterator();
  }
}

}  // namespace

void inline_modules(const std::shared_ptr<Graph>& graph) {
  inline_calls(graph->block());
}

}  // namespace aten_recompute
