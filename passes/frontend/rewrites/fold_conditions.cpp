#include "passes/frontend/rewrites/fold_conditions.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <optional>
#include <string>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

// Returns whether the node's operands are the same tensor; nullopt if that is not known.
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

std::optional<std::string> constant_string(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isString() ? std::optional(constant->toStringRef()) : std::nullopt;
}

// Returns the literal text of a format. Python's str.format() writes braces as {{ and }}, which
// TorchScript's does not know; they are literal text either way.
std::string literal_text(std::string format) {
  for (size_t at = format.find("{}"); at != std::string::npos; at = format.find("{}", at))
    format.erase(at, 2);
  return format;
}

// Returns whether the string cannot be empty.
bool is_never_empty(const Value* value) {
  if (const auto constant = constant_string(value))
    return !constant->empty();
  const auto* node = value->node();
  if (node->kind() == aten::format) {
    const auto format = constant_string(node->input(0));
    return format && !literal_text(*format).empty();
  }
  if (node->kind() == aten::add)
    return is_never_empty(node->input(0)) || is_never_empty(node->input(1));
  if (node->kind() != prim::If)
    return false;
  return std::all_of(node->blocks().begin(), node->blocks().end(), [&](const Block* block) {
    return is_never_empty(block->outputs()[value->offset()]);
  });
}

// Returns true for a node `len(string) > 0` whose string cannot be empty; nullopt otherwise.
std::optional<bool> is_length_positive(const Node* node) {
  const auto* length = node->input(0)->node();
  if (length->kind() != aten::len || length->input(0)->type()->kind() != c10::TypeKind::StringType)
    return std::nullopt;
  const auto bound = torch::jit::toIValue(node->input(1));
  const bool nothing = bound && bound->isInt() && bound->toInt() == 0;
  return nothing && is_never_empty(length->input(0)) ? std::optional(true) : std::nullopt;
}

// Returns the value of the condition that the node computes; nullopt if it is not known.
std::optional<bool> value_of(const Node* node) {
  switch (node->kind()) {
    case aten::__is__:
      return are_identical(node);
    case aten::__isnot__: {
      const auto identical = are_identical(node);
      return identical ? std::optional(!*identical) : std::nullopt;
    }
    case aten::gt:
      return is_length_positive(node);
    default:
      return std::nullopt;
  }
}

bool fold(Block* block, Graph& graph) {
  bool folded = false;
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    auto* node = *it++;
    for (auto* inner : node->blocks())
      folded |= fold(inner, graph);
    const auto known = value_of(node);
    if (!known)
      continue;
    const torch::jit::WithInsertPoint guard(node);
    node->output()->replaceAllUsesWith(graph.insertConstant(*known));
    node->destroy();
    folded = true;
  }
  return folded;
}

}  // namespace

bool fold_conditions(const std::shared_ptr<Graph>& graph) {
  return fold(graph->block(), *graph);
}

}  // namespace aten_recompute
