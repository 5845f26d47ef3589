#include "passes/region/fuse_batch_norm.h"

#include <torch/csrc/jit/ir/constants.h>

#include <array>
#include <optional>
#include <vector>

#include "ir/node_place.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Lower and upper bound; None is no bound.
using Bounds = std::array<c10::IValue, 2>;

std::optional<c10::IValue> constant_bound(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isScalar() || constant->toScalar().isComplex())
    return std::nullopt;
  return constant->toScalar().toDouble();
}

// The bounds of an activation that is a clamp, if they are constant.
std::optional<Bounds> bounds_of(const Node* node) {
  if (node->kind() == c10::aten::relu)
    return Bounds{0.0, c10::IValue()};
  if (node->kind() == c10::aten::relu6)
    return Bounds{0.0, 6.0};
  if (node->kind() != c10::aten::hardtanh)
    return std::nullopt;
  const auto lower = constant_bound(node->input(1));
  const auto upper = constant_bound(node->input(2));
  if (!lower || !upper)
    return std::nullopt;
  return Bounds{*lower, *upper};
}

// Returns whether the value is likely no image, but one vector per sample, for which the library
// has no kernels: fused, the backward would compute both operators again.
bool is_likely_matrix(const Value* value) {
  const auto kind = value->node()->kind();
  return kind == c10::aten::linear || kind == c10::aten::addmm || kind == c10::aten::mm ||
         kind == c10::aten::matmul;
}

// Puts the pair's operator in the place of `norm`: norms may share running statistics, which have
// to be updated in the order of the program.
void fuse(Graph& graph, Node* norm, Node* activation, const Bounds& bounds) {
  const torch::jit::WithInsertPoint guard(norm);
  std::vector<Value*> inputs(norm->inputs().begin(), norm->inputs().end());
  for (const auto& bound : bounds)
    inputs.push_back(graph.insertConstant(bound));
  auto* fused = graph.insertNode(graph.create(symbols::kClampedBatchNorm, inputs));
  fused->setSourceRange(activation->sourceRange());
  copy_place(activation, fused);
  fused->output()->copyMetadata(activation->output());
  activation->output()->replaceAllUsesWith(fused->output());
  activation->destroy();
  norm->destroy();
}

}  // namespace

std::shared_ptr<Graph> with_fused_batch_norms(const Graph& graph) {
  auto changed = const_cast<Graph&>(graph).copy();
  bool any = false;
  std::vector<Node*> activations;
  for (auto* node : changed->nodes()) {
    if (bounds_of(node))
      activations.push_back(node);
  }
  for (auto* activation : activations) {
    auto* norm = activation->input(0)->node();
    if (norm->kind() != c10::aten::batch_norm || norm->owningBlock() != changed->block() ||
        norm->output()->uses().size() != 1 || is_likely_matrix(norm->input(0)))
      continue;
    fuse(*changed, norm, activation, *bounds_of(activation));
    any = true;
  }
  return any ? changed : nullptr;
}

}  // namespace aten_recompute
