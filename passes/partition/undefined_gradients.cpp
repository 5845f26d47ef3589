#include "passes/partition/undefined_gradients.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
using Values = std::unordered_set<const Value*>;

// Whether the node accepts None for each of its gradients.
bool takes_none(const Node* node) {
  return node->kind() == symbols::kAccumulate || node->kind() == symbols::kTapeBackward;
}

bool reads_any(const Node* node, const Values& values) {
  return std::any_of(node->inputs().begin(), node->inputs().end(),
                     [&](const Value* input) { return values.count(input) != 0; });
}

// Returns the values that are computed from a gradient.
Values find_gradients(Graph& backward, size_t num_vjps) {
  Values gradients(backward.inputs().begin(),
                   backward.inputs().begin() + static_cast<std::ptrdiff_t>(num_vjps));
  for (auto* node : backward.nodes()) {
    if (node->kind() == symbols::kTapeBackward || reads_any(node, gradients))
      gradients.insert(node->outputs().begin(), node->outputs().end());
  }
  return gradients;
}

// Returns the operand by which the node reads a gradient, or -1 where it reads several gradients,
// or reads one in a list or inside of a block.
int64_t only_gradient(const Node* node, const Values& gradients) {
  int64_t found = -1;
  if (!node->blocks().empty() || node->kind() == c10::prim::ListConstruct)
    return -1;
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    const auto* input = node->input(i);
    if (gradients.count(input) == 0 || (found >= 0 && node->input(found) == input))
      continue;
    if (found >= 0 || !is_tensor_type(*input->type()))
      return -1;
    found = static_cast<int64_t>(i);
  }
  return found;
}

// Returns the gradients that an operator needs defined, and the gradients that these depend on.
Values find_required(Graph& backward, const Values& gradients) {
  Values required;
  const auto nodes = backward.nodes().reverse();
  for (auto* node : nodes) {
    if (node->kind() == symbols::kTapeBackward)
      continue;
    const bool of_results = std::any_of(node->outputs().begin(), node->outputs().end(),
                                        [&](const Value* v) { return required.count(v) != 0; });
    for (auto* input : node->inputs()) {
      if (gradients.count(input) == 0)
        continue;
      if (of_results || (!takes_none(node) && only_gradient(node, gradients) < 0))
        required.insert(input);
    }
    for (auto* block : node->blocks()) {
      for (auto* inner : block->nodes())
        required.insert(inner->inputs().begin(), inner->inputs().end());
      required.insert(block->outputs().begin(), block->outputs().end());
    }
  }
  return required;
}

}  // namespace

void allow_undefined_gradients(Graph& backward, size_t num_vjps) {
  const bool has_tape =
      std::any_of(backward.nodes().begin(), backward.nodes().end(),
                  [](Node* node) { return node->kind() == symbols::kTapeBackward; });
  if (!has_tape)
    return;
  const auto gradients = find_gradients(backward, num_vjps);
  const auto required = find_required(backward, gradients);
  Values undefined;  // gradients that may be
  for (auto* node : backward.nodes()) {
    if (node->kind() == symbols::kTapeBackward) {
      std::vector<int64_t> flags;
      for (auto* output : node->outputs()) {
        const bool may_be = is_tensor_type(*output->type()) && required.count(output) == 0;
        flags.push_back(may_be ? 1 : 0);
        if (may_be)
          undefined.insert(output);
      }
      node->is_(symbols::kMayBeUndefined, std::move(flags));
    } else if (reads_any(node, undefined)) {
      if (!takes_none(node))
        node->i_(symbols::kSkipIfUndefined, only_gradient(node, gradients));
      undefined.insert(node->outputs().begin(), node->outputs().end());
    }
  }
}

}  // namespace aten_recompute
