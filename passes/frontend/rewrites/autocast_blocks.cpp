#include "passes/frontend/rewrites/autocast_blocks.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/frontend/rewrites/context_objects.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// As in Python. Classes that TorchScript has compiled lack this attribute.
constexpr const char* kCacheEnabled = "_cache_enabled";

// Returns whether the value is a torch.autocast, torch.cuda.amp.autocast or torch.cpu.amp.autocast.
bool is_autocast(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  return type != nullptr && type->name() && type->name()->name() == "autocast" &&
         type->hasAttribute("device") && type->hasAttribute("_enabled") &&
         type->hasAttribute("fast_dtype");
}

// Returns whether the object is made in the method, and only used as the context of blocks.
bool is_own_context(const Value* object) {
  const auto& uses = object->uses();
  return object->node()->kind() == prim::CreateObject &&
         std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
           const auto kind = use.user->kind();
           return kind == prim::Enter || kind == prim::Exit ||
                  (kind == prim::SetAttr && use.offset == 0);
         });
}

// Returns whether `node` runs whenever `later` does, before it.
bool always_runs_before(const Node* node, const Node* later) {
  const auto* block = later->owningBlock();
  while (block != nullptr && block != node->owningBlock())
    block = block->owningNode() == nullptr ? nullptr : block->owningNode()->owningBlock();
  return block != nullptr && node->isBefore(later);
}

// Returns what an attribute of the object has been set to before `node`; nullptr if that is not
// known, or it is set more than once.
Value* set_before(const Value* object, const std::string& name, const Node* node) {
  Value* value = nullptr;
  for (const auto& use : object->uses()) {
    if (use.user->kind() != prim::SetAttr || use.user->s(c10::attr::name) != name)
      continue;
    if (value != nullptr || !always_runs_before(use.user, node))
      return nullptr;
    value = use.user->input(1);
  }
  return value;
}

void replace_enter(Node* node, Graph& graph) {
  auto* object = node->input();
  const bool is_own = is_own_context(object);
  const torch::jit::WithInsertPoint guard(node);
  std::vector<Value*> arguments;
  for (const char* name : {"device", "_enabled", "fast_dtype"}) {
    auto* value = is_own ? set_before(object, name, node) : nullptr;
    arguments.push_back(value == nullptr ? graph.insertGetAttr(object, name) : value);
  }
  auto* cache = is_own ? set_before(object, kCacheEnabled, node) : nullptr;
  arguments.push_back(cache == nullptr ? graph.insertConstant(c10::IValue()) : cache);
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

void remove_cache_enabled(const Node* object) {
  const auto uses = object->output()->uses();
  for (const auto& use : uses) {
    if (use.user->kind() == prim::SetAttr && use.user->s(c10::attr::name) == kCacheEnabled)
      use.user->destroy();
  }
}

}  // namespace

void keep_cache_enabled(Node* call, const c10::FunctionSchema& schema) {
  const auto index = schema.argumentIndexWithName("cache_enabled");
  if (!index || schema.name() != "__init__" || !is_autocast(call->input(0)) ||
      call->input(0)->node()->kind() != prim::CreateObject)
    return;
  auto* set = call->owningGraph()->create(prim::SetAttr, {call->input(0), call->input(*index)}, 0);
  set->s_(c10::attr::name, kCacheEnabled)->insertBefore(call);
}

void autocast_blocks(Graph& graph) {
  std::vector<Node*> found, objects;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == prim::CreateObject && is_autocast(node->output()))
      objects.push_back(node);
    if ((node->kind() == prim::Enter || node->kind() == prim::Exit) && is_autocast(node->input(0)))
      found.push_back(node);
  });
  for (auto* node : found) {
    if (node->kind() == prim::Enter)
      replace_enter(node, graph);
    else
      replace_exit(node, graph);
  }
  for (auto* object : objects) {
    remove_cache_enabled(object);
    remove_if_only_set(object);
  }
}

}  // namespace aten_recompute
