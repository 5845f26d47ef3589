#include "passes/strategy/operator_types.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// Returns the node of the operator that a tape runs; for any other node, the node.
const Node* inner_operator(const Node* node) {
  if (node->kind() != symbols::kTapeForward)
    return node;
  return *node->g(c10::attr::Subgraph)->nodes().begin();
}

OperatorNames to_set(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

std::string listed_name(const Node* node) {
  const auto kind = inner_operator(node)->kind();
  return kind.is_aten() ? kind.toUnqualString() : kind.toQualString();
}

OperatorTypes::OperatorTypes(const std::optional<std::vector<std::string>>& recomputable,
                             const std::optional<std::vector<std::string>>& compute_intensive,
                             bool recompute_random)
    : recompute_random_(recompute_random) {
  if (recomputable)
    recomputable_ = to_set(*recomputable);
  if (compute_intensive)
    compute_intensive_ = to_set(*compute_intensive);
}

bool OperatorTypes::random(const Node* node) const {
  return is_random(inner_operator(node));
}

bool OperatorTypes::recomputable(const Node* node) const {
  if (has_fact(node, Fact::kMovesValues))
    return true;
  if (random(node))
    return recompute_random_;
  if (recomputable_)
    return recomputable_->count(listed_name(node)) != 0;
  const auto* inner = inner_operator(node);
  return has_fact(inner, Fact::kCheap) || is_pointwise(inner);
}

bool OperatorTypes::compute_intensive(const Node* node) const {
  if (compute_intensive_)
    return compute_intensive_->count(listed_name(node)) != 0;
  return has_fact(inner_operator(node), Fact::kComputeIntensive);
}

bool OperatorTypes::fusible(const Node* node) const {
  return random(node) || recomputable(node);
}

bool OperatorTypes::concatenates(const Node* node) const {
  return has_fact(inner_operator(node), Fact::kConcatenates);
}

}  // namespace aten_recompute
