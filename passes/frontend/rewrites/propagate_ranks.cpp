#include "passes/frontend/rewrites/propagate_ranks.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>

#include "ir/attribute_path.h"
#include "ir/operator_facts.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;
using Rank = std::optional<int64_t>;

bool is_tensor(const Value* value) {
  return value->type()->kind() == c10::TypeKind::TensorType;
}

// Returns the length of a list of ints; nullopt if it is unknown.
Rank length_of(const Value* list) {
  if (list->node()->kind() == prim::ListConstruct)
    return static_cast<int64_t>(list->node()->inputs().size());
  const auto constant = torch::jit::toIValue(list);
  return constant && constant->isIntList() ? Rank(constant->toIntVector().size()) : std::nullopt;
}

class Ranks {
 public:
  Ranks(Graph& graph, const c10::intrusive_ptr<c10::ivalue::Object>& root)
      : graph_(graph), root_(root), set_attributes_(set_attributes(graph)) {}

  void infer_in(Block* block) {
    for (auto* node : block->nodes()) {
      for (auto* inner : node->blocks())
        infer_in(inner);
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        auto* output = node->output(i);
        if (!is_tensor(output) || rank_of(output))
          continue;
        if (const auto rank = infer(node, i)) {
          output->setType(c10::TensorType::create(std::nullopt, std::nullopt,
                                                  static_cast<size_t>(*rank), std::nullopt));
        }
      }
    }
  }

  std::vector<FoldedAttribute> folded;

 private:
  static Rank rank_of(const Value* value) {
    const auto type = value->type()->cast<c10::TensorType>();
    const auto rank = type ? type->dim() : std::nullopt;
    return rank ? Rank(static_cast<int64_t>(*rank)) : std::nullopt;
  }

  Rank infer(Node* node, size_t output) {
    if (node->kind() == prim::If) {
      const auto first = rank_of(node->blocks()[0]->outputs()[output]);
      return first == rank_of(node->blocks()[1]->outputs()[output]) ? first : std::nullopt;
    }
    if (node->kind() == prim::ListUnpack) {
      const auto* list = node->input()->node();
      const bool parts = list->kind() == aten::chunk || list->kind() == aten::split;
      return parts ? rank_of(list->input(0)) : std::nullopt;
    }
    if (node->inputs().empty() || !is_tensor(node->input(0)))
      return std::nullopt;
    const auto first = rank_of(node->input(0));
    if (has_fact(node, Fact::kKeepsRank))
      return first;
    if (has_fact(node, Fact::kBroadcastsRanks)) {
      const auto second = is_tensor(node->input(1)) ? rank_of(node->input(1)) : Rank(0);
      return first && second ? Rank(std::max(*first, *second)) : std::nullopt;
    }
    switch (node->kind()) {
      case aten::view:
      case aten::reshape:
      case aten::expand:
        return length_of(node->input(1));
      case aten::unsqueeze:
        return first ? Rank(*first + 1) : std::nullopt;
      case aten::select:
        return first ? Rank(*first - 1) : std::nullopt;
      case aten::bmm:
        return 3;
      case aten::linear:
        return first && is_matrix(node->input(1)) ? first : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  // Returns whether the weight has two dimensions. If it is an attribute, that is assumed from here
  // on.
  bool is_matrix(Value* weight) {
    if (const auto rank = rank_of(weight))
      return *rank == 2;
    const auto path = path_from_root(weight, graph_);
    if (!path || path->empty() || set_attributes_.count(path->back()) != 0)
      return false;
    const auto held = read_path(root_, *path);
    if (!held || !held->isTensor() || !held->toTensor().defined() || held->toTensor().dim() != 2)
      return false;
    weight->setType(c10::TensorType::create(std::nullopt, std::nullopt, size_t{2}, std::nullopt));
    FoldedAttribute attribute;
    attribute.path = *path;
    attribute.rank = 2;
    folded.push_back(std::move(attribute));
    return true;
  }

  const Graph& graph_;
  const c10::intrusive_ptr<c10::ivalue::Object>& root_;
  const std::unordered_set<std::string> set_attributes_;  // names
};

}  // namespace

std::vector<FoldedAttribute> propagate_ranks(const std::shared_ptr<Graph>& graph,
                                             const c10::intrusive_ptr<c10::ivalue::Object>& root) {
  Ranks ranks(*graph, root);
  ranks.infer_in(graph->block());
  return std::move(ranks.folded);
}

}  // namespace aten_recompute
