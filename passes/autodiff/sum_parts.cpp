#include "passes/autodiff/sum_parts.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

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

// Returns whether a part that ends at `end` lies before one that begins at `begin`. Bounds of
// different signs cannot be compared while the size is not known.
bool lies_before(const Value* end, const Value* begin) {
  if (end == begin)
    return true;
  const auto last = constant_as<int64_t>(end);
  const auto first = constant_as<int64_t>(begin);
  return last && first && *last != kEnd && (*last < 0) == (*first < 0) && *last <= *first;
}

// Returns whether two parts are disjoint: what nodes of one kind read along one dimension. With
// `may_be_one`, the first and the last element may be one, x[0] and x[-1].
bool are_disjoint(const Node* a, const Node* b, bool may_be_one) {
  const auto first = constant_as<int64_t>(a->input(3));
  const auto second = constant_as<int64_t>(b->input(3));
  if (is_select(a))
    return first && second && *first != *second && (may_be_one || (*first < 0) == (*second < 0));
  const auto step = constant_as<int64_t>(a->input(5));
  if (!step || step != constant_as<int64_t>(b->input(5)))
    return false;
  if (lies_before(a->input(4), b->input(3)) || lies_before(b->input(4), a->input(3)))
    return true;
  return first && second && *first >= 0 && *second >= 0 && (*first - *second) % *step != 0;
}

// `is_first`: nothing is added to the sum of the parts before. If they overlap in a call, the
// operator then adds them in eager's order; behind another summand that would be another order.
bool may_join(const std::vector<Node*>& run, const Node* part, bool is_first) {
  return std::all_of(run.begin(), run.end(), [&](const Node* each) {
    return each->kind() == part->kind() &&
           constant_as<int64_t>(each->input(2)) == constant_as<int64_t>(part->input(2)) &&
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
    std::vector<Node*> run;
    size_t end = begin;
    while (end < summands.size() && is_part(summands[end]) &&
           may_join(run, summands[end]->node(), /*is_first=*/begin == 0))
      run.push_back(summands[end++]->node());
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
