#include "ir/data_dependence.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Node;

// Returns whether the operator reads elements of its operands to decide a size or a number.
bool reads_data(const Node* node) {
  if (has_fact(node, Fact::kReadsData))
    return true;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return false;
  const auto op = c10::Dispatcher::singleton().findSchema(schema->operator_name());
  return op.has_value() &&
         (op->hasTag(at::Tag::dynamic_output_shape) || op->hasTag(at::Tag::data_dependent_output));
}

// Returns whether this is an operator of another library without a Meta kernel, which would compute
// the sizes of its results without data.
bool is_unknown(const Node* node) {
  if (node->maybeSchema() == nullptr || node->kind().is_aten() || node->kind().is_prim() ||
      node->kind().ns() == symbols::kMarkLayer.ns())
    return false;
  const auto op = c10::Dispatcher::singleton().findSchema(node->schema().operator_name());
  return !op.has_value() || !op->hasKernelForDispatchKey(c10::DispatchKey::Meta);
}

bool any_node(const at::ArrayRef<const Block*>& blocks, bool (*holds)(const Node*)) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const Block* block) {
    return std::any_of(block->nodes().begin(), block->nodes().end(), holds);
  });
}

bool is_mask(const c10::IValue& index) {
  return index.isTensor() && index.toTensor().defined() &&
         (index.toTensor().scalar_type() == at::kBool ||
          index.toTensor().scalar_type() == at::kByte);
}

}  // namespace

bool has_sizes_of_data(const Node* node) {
  // What is divided into slices has rows that data do not decide.
  if (node->kind() == symbols::kSliced)
    return false;
  if (node->kind() == c10::aten::index || reads_data(node) || is_unknown(node))
    return true;
  if (node->hasAttribute(c10::attr::Subgraph)) {
    const auto& graph = node->g(c10::attr::Subgraph);
    return any_node({graph->block()}, has_sizes_of_data);
  }
  return any_node(node->blocks(), has_sizes_of_data);
}

bool depends_on_data(const Node* node, const std::vector<c10::IValue>& operands) {
  if (node->kind() != c10::aten::index)
    return has_sizes_of_data(node);
  if (!operands[1].isList())
    return true;
  const auto indices = operands[1].toListRef();
  return std::any_of(indices.begin(), indices.end(), is_mask);
}

}  // namespace aten_recompute
