#include "passes/written_later.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "passes/node_traits.h"
#include "passes/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// What made the memory of `value`, as far as one can see: behind views and in-place operators.
const Value* base_of(const Value* value) {
  for (;;) {
    const auto* node = value->node();
    const bool passes_on = node->kind() == prim::ListUnpack || is_cast(node) ||
                           node->kind() == c10::aten::__getitem__ || mutates_an_argument(node) ||
                           (node->kind().is_aten() && may_alias_an_argument(node));
    if (!passes_on || node->inputs().empty())
      return value;
    value = node->input(0);
  }
}

bool are_same_attribute(const Value* a, const Value* b) {
  while (a != b) {
    const auto* one = a->node();
    const auto* two = b->node();
    if (one->kind() != prim::GetAttr || two->kind() != prim::GetAttr ||
        one->s(c10::attr::name) != two->s(c10::attr::name))
      return false;
    a = one->input(0);
    b = two->input(0);
  }
  return true;
}

}  // namespace

void mark_reads_of_what_is_written_later(Graph& graph) {
  std::vector<Node*> nodes;
  std::vector<Node*> writers;
  for_each_node(graph.block(), [&](Node* node) { nodes.push_back(node); });
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(writers), mutates_an_argument);
  if (writers.empty())
    return;
  for (auto* node : nodes) {
    if (!node->blocks().empty() || node->maybeSchema() == nullptr || is_pure_view(node) ||
        mutates_an_argument(node))
      continue;
    const bool in_a_loop = is_in_a_loop(node);
    const bool marked =
        std::any_of(node->inputs().begin(), node->inputs().end(), [&](const Value* input) {
          if (!contains_tensor(*input->type()))
            return false;
          const auto* base = base_of(input);
          return std::any_of(writers.begin(), writers.end(), [&](const Node* writer) {
            return (in_a_loop || writer->isAfter(node)) &&
                   are_same_attribute(base_of(writer->input(0)), base);
          });
        });
    if (marked)
      node->i_(symbols::kReadsWritten, 1);
  }
}

}  // namespace aten_recompute
