#include "passes/partition/split_sums.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Whether the value is a sum of gradients of a region input, with one reader.
bool is_sum_for_input(const Value* value) {
  return value->node()->kind() == symbols::kAccumulate &&
         value->node()->hasAttribute(symbols::kOfInput) && value->uses().size() == 1;
}

// Returns whether the node gives the gradient of a cast that is shared the type of what was cast.
bool is_backward_of_cast(const Node* node) {
  return (node->kind() == symbols::kReduceGrad || node->kind() == c10::aten::to) &&
         node->hasAttribute(symbols::kBackwardOf) && node->hasAttribute(symbols::kCachedCast);
}

// Returns the gradient of a cast, whose type has been changed to that of `gradient`, if it is a
// sum; otherwise `gradient`.
Value* sum_of_cast(Value* gradient) {
  auto* value = gradient;
  while (is_backward_of_cast(value->node()) && value->uses().size() == 1)
    value = value->node()->input(0);
  return is_sum_for_input(value) ? value : gradient;
}

// Appends the summands of the value, in the order in which they are added.
void collect(Value* value, std::vector<Value*>& summands) {
  if (!is_sum_for_input(value)) {
    summands.push_back(value);
    return;
  }
  // The second operand is one gradient, even if it is itself a sum: that is another value's.
  auto* node = value->node();
  auto* sum = node->input(0);
  const bool continues =
      is_sum_for_input(sum) && sum->node()->i(symbols::kOfInput) == node->i(symbols::kOfInput);
  if (continues)
    collect(sum, summands);
  else
    summands.push_back(sum);
  summands.push_back(node->input(1));
}

// A summand and what it is of the output that is split.
using Split = std::vector<std::pair<Value*, SummandKind>>;

// Splits the sum of the gradients of an input.
Split split_sum(Value* sum, bool has_shared_cast) {
  std::vector<Value*> summands;
  collect(sum, summands);
  const auto is_of_cast = [](const Value* value) { return is_backward_of_cast(value->node()); };
  const bool is_known = std::count_if(summands.begin(), summands.end(), is_of_cast) == 1;
  auto kind = SummandKind::kPlain;
  Split split;
  for (auto* summand : summands) {
    if (!has_shared_cast || !is_known || !is_of_cast(summand)) {
      split.emplace_back(summand, kind);
      continue;
    }
    std::vector<Value*> of_cast;
    collect(sum_of_cast(summand), of_cast);
    for (auto* value : of_cast)
      split.emplace_back(value, SummandKind::kOfCast);
    kind = SummandKind::kAfterCast;
  }
  return split;
}

// Destroys the node of a value that nothing reads, if it is a sum or belongs to a cast, and then
// those of its operands in the same way.
void destroy_unread_sums(Value* value) {
  auto* node = value->node();
  if (!value->uses().empty() ||
      (node->kind() != symbols::kAccumulate && !is_backward_of_cast(node)))
    return;
  const std::vector<Value*> operands(node->inputs().begin(), node->inputs().end());
  node->destroy();
  for (auto* operand : std::set<Value*>(operands.begin(), operands.end()))
    destroy_unread_sums(operand);
}

}  // namespace

std::vector<Summand> split_sums(Graph& backward, const std::set<size_t>& of_casts) {
  const std::vector<Value*> outputs(backward.outputs().begin(), backward.outputs().end());
  std::vector<Split> splits;
  for (size_t i = 0; i < outputs.size(); ++i)
    splits.push_back(split_sum(outputs[i], of_casts.count(i) != 0));
  while (!backward.outputs().empty())
    backward.eraseOutput(backward.outputs().size() - 1);
  std::vector<Summand> summands;
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const auto& [value, kind] : splits[i]) {
      backward.registerOutput(value);
      summands.push_back({i, kind});
    }
  }
  for (auto* output : outputs)
    destroy_unread_sums(output);
  return summands;
}

}  // namespace aten_recompute
