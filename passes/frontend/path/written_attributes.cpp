#include "passes/frontend/path/written_attributes.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/attribute_path.h"
#include "ir/node_traits.h"
#include "runtime/write_back.h"

namespace aten_recompute {
namespace {

namespace prim = c10::prim;
using torch::jit::Graph;
using torch::jit::Value;

// Returns the value whose memory this one is in.
Value* memory_of(Value* value) {
  while (!value->node()->inputs().empty() &&
         (may_alias_an_argument(value->node()) || mutates_an_argument(value->node()) ||
          is_cast(value->node())))
    value = value->node()->input(0);
  return value;
}

// Returns whether the node may raise an error, as far as its kind tells. Only the kinds that stand
// at the end of a path are known not to.
bool can_raise(const torch::jit::Node* node) {
  switch (node->kind()) {
    case prim::Constant:
    case prim::GetAttr:
    case prim::SetAttr:
    case prim::TupleConstruct:
    case prim::ListConstruct:
      return false;
    default:
      return node->kind() != kWriteBack;
  }
}

}  // namespace

std::optional<std::vector<std::vector<std::string>>> written_attributes(Graph& graph) {
  std::vector<std::vector<std::string>> written;
  for (auto* node : graph.nodes()) {
    const bool updates = updates_hidden_state(node);
    if ((!updates && !mutates_an_argument(node)) || node->kind() == c10::aten::requires_grad_)
      continue;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      // A tensor that is put into the caller's container is not written to.
      if (!is_tensor_type(*node->input(i)->type()) || !(updates || writes_to(node, i)))
        continue;
      auto* memory = memory_of(node->input(i));
      const auto path = path_from_root(memory, graph);
      if (path)
        written.push_back(*path);
      else if (!updates && !makes_new_tensor(memory))
        return std::nullopt;
    }
  }
  return written;
}

std::set<std::vector<std::string>> attributes_written_last(Graph& graph) {
  std::set<std::vector<std::string>> written;
  for (auto* node : graph.nodes().reverse()) {
    if (can_raise(node))
      break;
    if (node->kind() != kWriteBack)
      continue;
    if (auto path = path_from_root(memory_of(node->input(0)), graph))
      written.insert(std::move(*path));
  }
  return written;
}

std::set<std::vector<std::string>> attributes_written_in_place(Graph& graph) {
  std::set<std::vector<std::string>> written;
  for (auto* node : graph.nodes()) {
    if (!mutates_an_argument(node) || !is_tensor_type(*node->input(0)->type()))
      continue;
    if (auto path = path_from_root(memory_of(node->input(0)), graph))
      written.insert(std::move(*path));
  }
  return written;
}

}  // namespace aten_recompute
