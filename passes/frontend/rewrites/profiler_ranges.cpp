#include "passes/frontend/rewrites/profiler_ranges.h"

#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "ir/node_traits.h"
#include "passes/frontend/rewrites/context_objects.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns whether the value is a torch.autograd.profiler.record_function, which torch.profiler has
// under the same name.
bool is_range(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  return type != nullptr && type->name() && type->name()->name() == "record_function" &&
         type->hasAttribute("run_callbacks_on_exit") && type->hasAttribute("record");
}

}  // namespace

void remove_profiler_ranges(torch::jit::Graph& graph) {
  std::vector<Node*> bounds, objects;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == prim::CreateObject && is_range(node->output()))
      objects.push_back(node);
    if ((node->kind() == prim::Enter || node->kind() == prim::Exit) && is_range(node->input(0)))
      bounds.push_back(node);
  });
  for (auto* node : bounds) {
    // A block of a range returns the range where it is entered, and nothing where it is left.
    if (node->kind() == prim::Enter)
      node->output()->replaceAllUsesWith(node->input(0));
    if (!node->hasUses())
      node->destroy();
  }
  for (auto* object : objects)
    remove_if_only_set(object);
}

}  // namespace aten_recompute
