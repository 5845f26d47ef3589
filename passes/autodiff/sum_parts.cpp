#include "passes/autodiff/sum_parts.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::constant_as;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;

const auto kSelectsBackward = c10::Symbol::fromQualString("aten_recompute::selects_backward");
const auto kSlicesBackward = c10::Symbol::fromQualString("aten_recompute::slices_backward");
constexpr auto kEnd = std::numeric_limits<int64_t>::max();

bool is_part(const Value* value) {
  const auto kind = value->node()->kind();
  return (kind == aten::select_backward || kind == aten::slice_backward) &&
         value->uses().size() == 1 && constant_as<int64_t>(value->node()->input(2));
}

bool is_select(const Node* part) {
  return part->kind() == aten::select_backward;
}

// What a node reads along its dimension: x[first], or x[first:end:step]. A bound that is not
// constant has no number.
struct Part {
  Node* node;
  int64_t dim;
  std::optional<int64_t> first, end, step;

  explicit Part(Node* part)
      : node(part),
        dim(constant_as<int64_t>(part->input(2)).value()),
        first(constant_as<int64_t>(part->input(3))) {
    if (!is_select(part)) {
      end = constant_as<int64_t>(part->input(4));
      step = constant_as<int64_t>(part->input(5));
    }
  }
};

// Returns whether `a` ends before `b` begins. Bounds of different signs cannot be compared while
// the size is not known.
bool lies_before(const Part& a, const Part& b) {
  if (a.node->input(4) == b.node->input(3))
    return true;
  return a.end && b.first && *a.end != kEnd && (*a.end < 0) == (*b.first < 0) && *a.end <= *b.first;
}

// Returns whether two parts are disjoint: what nodes of one kind read along one dimension. With
// `may_be_one`, the first and the last element may be one, x[0] and x[-1].
bool are_disjoint(const Part& a, const Part& b, bool may_be_one) {
  if (is_select(a.node)) {
    return a.first && b.first && *a.first != *b.first &&
           (may_be_one || (*a.first < 0) == (*b.first < 0));
  }
  if (!a.step || a.step != b.step)
    return false;
  if (lies_before(a, b) || lies_before(b, a))
    return true;
  return a.first && b.first && *a.first >= 0 && *b.first >= 0 &&
         (*a.first - *b.first) % *a.step != 0;
}

// `is_first`: nothing is added to the sum of the parts before. If they overlap in a call, the
// operator then adds them in eager's order; behind another summand that would be another order.
bool may_join(const std::vector<Part>& run, const Part& part, bool is_first) {
  return std::all_of(run.begin(), run.end(), [&](const Part& each) {
    return each.node->kind() == part.node->kind() && each.dim == part.dim &&
           are_disjoint(each, part, /*may_be_one=*/is_first);
  });
}

bool is_sum(const Node* node) {
  return node->kind() == symbols::kAccumulate && !node->hasAttribute(symbols::kOfInput);
}

// The sum of one value's gradients.
struct Chain {
  std::vector<Value*> summands;  // in the order in which they are added
  std::vector<Node*> sums;       // sums[i] adds summands[i + 1]
};

// Returns the chain that ends with `last`; nodes on the other side of `start` do not belong to it.
Chain chain_of(Node* last, const Node* start) {
  Chain chain;
  const bool is_forward = last->isBefore(start);
  for (auto* sum = last;; sum = sum->input(0)->node()) {
    chain.sums.push_back(sum);
    chain.summands.push_back(sum->input(1));
    const auto* before = sum->input(0);
    if (is_sum(before->node()) && before->uses().size() == 1 &&
        before->node()->isBefore(start) == is_forward)
      continue;
    chain.summands.push_back(sum->input(0));
    break;
  }
  std::reverse(chain.sums.begin(), chain.sums.end());
  std::reverse(chain.summands.begin(), chain.summands.end());
  return chain;
}

bool ends_chain(const Node* node, const Node* start) {
  if (!is_sum(node))
    return false;
  const auto& uses = node->output()->uses();
  return uses.size() != 1 || uses[0].offset != 0 || !is_sum(uses[0].user) ||
         uses[0].user->isBefore(start) != node->isBefore(start);
}

// Returns a list of operand `index` of each part.
Value* insert_list(Graph& graph, const std::vector<Node*>& parts, size_t index,
                   const c10::TypePtr& type) {
  std::vector<Value*> elements;
  for (const auto* part : parts)
    elements.push_back(part->input(index));
  return graph.insertNode(graph.createList(type, elements))->output();
}

// Returns a list of operand `index`, an int, of each part.
Value* insert_ints(Graph& graph, const std::vector<Node*>& parts, size_t index) {
  c10::List<int64_t> constants;
  for (const auto* part : parts) {
    const auto constant = constant_as<int64_t>(part->input(index));
    if (!constant)
      return insert_list(graph, parts, index, c10::IntType::get());
    constants.push_back(*constant);
  }
  return graph.insertConstant(constants);
}

// Returns whether the value is a view of something larger, or an element of a list of such views.
bool shows_part(const Value* value) {
  const auto* node = value->node();
  for (;; node = node->input(0)->node()) {
    const auto kind = node->kind();
    if (kind == aten::select || kind == aten::slice || kind == aten::narrow ||
        kind == aten::diagonal || kind == aten::__getitem__ || kind == c10::prim::ListUnpack)
      return true;
    if (kind == aten::expand || !may_alias_an_argument(node))
      return false;
  }
}

// The gradient of a part is kept until all others are there. Where it is a view, it would keep all
// of what it is a view of, which select_backward() and slice_backward() do not: copies it in their
// place.
void copy_views(JointGraph& joint, const std::vector<Node*>& parts) {
  auto& graph = *joint.graph;
  for (auto* part : parts) {
    auto* gradient = part->input(0);
    if (!shows_part(gradient))
      continue;
    const torch::jit::WithInsertPoint guard(part);
    auto* copy = graph.insert(aten::clone, {gradient});
    for (auto* node : {copy->node(), copy->node()->input(1)->node()}) {
      node->copyMetadata(part);
      if (node->kind() != c10::prim::Constant)
        node->copyAttributes(*part);
    }
    part->replaceInput(0, copy);
    if (joint.requires_grad.count(part->output()->unique()) != 0)
      joint.requires_grad.insert(copy->unique());
  }
}

// Inserts the operator that adds up the parts in front of `sum`, and returns its result.
Value* insert_sum(Graph& graph, const std::vector<Node*>& parts, Node* sum) {
  const torch::jit::WithInsertPoint guard(sum);
  auto* before = sum->prev();
  const auto* first = parts.front();
  std::vector<Value*> operands = {insert_list(graph, parts, 0, c10::OptionalType::ofTensor()),
                                  first->input(1), first->input(2), insert_ints(graph, parts, 3)};
  if (!is_select(first)) {
    operands.push_back(insert_ints(graph, parts, 4));
    operands.push_back(first->input(5));
  }
  auto* node = graph.create(is_select(first) ? kSelectsBackward : kSlicesBackward, operands, 1);
  graph.insertNode(node)->output()->setType(c10::TensorType::get());
  for (auto* added = before->next(); added != sum; added = added->next()) {
    added->copyMetadata(parts.back());
    if (added->kind() != c10::prim::Constant)
      added->copyAttributes(*parts.back());
  }
  return node->output();
}

// Makes one summand of summands [begin, end) of the chain, which are parts.
void join(JointGraph& joint, const Chain& chain, size_t begin, size_t end) {
  std::vector<Node*> parts;
  for (size_t i = begin; i < end; ++i)
    parts.push_back(chain.summands[i]->node());
  copy_views(joint, parts);
  auto* last = chain.sums[end - 2];
  auto* joined = insert_sum(*joint.graph, parts, last);
  if (joint.requires_grad.count(last->output()->unique()) != 0)
    joint.requires_grad.insert(joined->unique());
  size_t first_unused = begin;  // of the sums
  size_t end_unused = end - 1;
  if (begin == 0) {
    last->output()->replaceAllUsesWith(joined);
  } else {
    auto* before = chain.sums[begin - 1]->input(0);
    last->replaceInput(0, before);
    last->replaceInput(1, joined);
    first_unused = begin - 1;
    end_unused = end - 2;
  }
  for (size_t i = end_unused; i-- > first_unused;)
    chain.sums[i]->destroy();
  for (auto* part : parts)
    part->destroy();
}

void join_parts(JointGraph& joint, const Chain& chain) {
  const auto& summands = chain.summands;
  for (size_t begin = 0; begin < summands.size();) {
    std::vector<Part> run;
    size_t end = begin;
    for (; end < summands.size() && is_part(summands[end]); ++end) {
      const Part part(summands[end]->node());
      if (!may_join(run, part, /*is_first=*/begin == 0))
        break;
      run.push_back(part);
    }
    if (run.size() > 1)
      join(joint, chain, begin, end);
    begin = std::max(end, begin + 1);
  }
}

}  // namespace

void sum_parts(JointGraph& joint) {
  std::vector<Node*> ends;
  for (auto* node : joint.graph->nodes()) {
    if (ends_chain(node, joint.backward_start))
      ends.push_back(node);
  }
  for (auto* node : ends)
    join_parts(joint, chain_of(node, joint.backward_start));
}

}  // namespace aten_recompute
