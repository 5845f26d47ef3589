#include "backend/method/outside_regions.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/pipeline.h"
#include "rules/autocast_probe.h"

namespace aten_recompute {
namespace {

// Returns whether an operator that makes a differentiable tensor outside of regions is one that
// `counts`.
bool has_operator_outside(torch::jit::Graph& graph, bool (*counts)(const torch::jit::Node*)) {
  bool found = false;
  for_each_node(graph.block(), [&](const torch::jit::Node* node) {
    const bool is_operator = node->kind() != symbols::kDifferentiableGraph &&
                             node->maybeSchema() != nullptr && node->blocks().empty() &&
                             !node->kind().is_prim() && !may_alias_an_argument(node) &&
                             !mutates_an_argument(node) && !is_non_differentiable(node);
    const auto outputs = node->outputs();
    found = found || (is_operator && counts(node) &&
                      std::any_of(outputs.begin(), outputs.end(),
                                  [](auto* value) { return contains_tensor(*value->type()); }));
  });
  return found;
}

}  // namespace

bool keeps_memory_outside(torch::jit::Graph& graph) {
  // Copies that a method makes before its only region are a part of that region's plan
  // (MethodMemory). With several regions, the call is planned as a whole anyway.
  return has_operator_outside(graph, [](const torch::jit::Node* node) {
    return !node->hasAttribute(symbols::kBeforeRegions);
  });
}

bool may_cast_outside(torch::jit::Graph& graph) {
  return has_operator_outside(graph, [](const torch::jit::Node* node) {
    const auto& schema = node->schema();
    const auto op =
        c10::Dispatcher::singleton().findSchema({schema.name(), schema.overload_name()});
    return !op || op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
           has_autocast_kernel(*op, at::kCPU) || has_autocast_kernel(*op, at::kCUDA);
  });
}

bool may_cast_unplanned(const std::vector<torch::jit::Node*>& regions) {
  return regions.size() > 1 &&
         std::any_of(regions.begin(), regions.end(), [](const torch::jit::Node* node) {
           return !has_backward(node->g(c10::attr::Subgraph));
         });
}

bool calls_methods(torch::jit::Graph& graph) {
  bool found = false;
  for_each_node(graph.block(), [&](const torch::jit::Node* node) {
    found =
        found || node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction;
  });
  return found;
}

}  // namespace aten_recompute
