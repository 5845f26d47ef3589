#include "passes/partition/split_sums.h"

#include <torch/csrc/jit/ir/ir.h>

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

// Returns whether the node gives the gradient of a cast the type of what was cast.
bool is_backward_of_cast(const Node* node) {
  return node->kind() == symbols::kReduceGrad || node->kind() == c10::aten::to;
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

}  // namespace

std::vector<size_t> split_sums(Graph& backward, const std::set<size_t>& of_casts) {
  const std::vector<Value*> outputs(backward.outputs().begin(), backward.outputs().end());
  std::vector<std::vector<Value*>> split;
  for (size_t i = 0; i < outputs.size(); ++i) {
    split.emplace_back();
    collect(of_casts.count(i) == 0 ? outputs[i] : sum_of_cast(outputs[i]), split.back());
  }
  while (!backward.outputs().empty())
    backward.eraseOutput(backward.outputs().size() - 1);
  std::vector<size_t> summand_of;
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (auto* summand : split[i]) {
      backward.registerOutput(summand);
      summand_of.push_back(i);
    }
  }
  for (auto* output : outputs) {
    auto* value = output;
    while (value->uses().empty() &&
           (value->node()->kind() == symbols::kAccumulate || is_backward_of_cast(value->node()))) {
      auto* node = value->node();
      value = node->input(0);
      node->destroy();
    }
  }
  return summand_of;
}

}  // namespace aten_recompute
