#include "passes/frontend/rewrites/restore_convolutions.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

const c10::Symbol& convolution_symbol() {
  static const auto symbol = c10::Symbol::fromQualString("aten::_convolution");
  return symbol;
}

const c10::Symbol& mode_symbol() {
  static const auto symbol = c10::Symbol::fromQualString("aten::_convolution_mode");
  return symbol;
}

// Returns the length of a list of numbers; nullopt if it is not known.
std::optional<size_t> known_length_of(Value* list) {
  if (list->node()->kind() == prim::ListConstruct)
    return list->node()->inputs().size();
  const auto constant = torch::jit::toIValue(list);
  if (!constant || !constant->isIntList())
    return std::nullopt;
  return constant->toIntList().size();
}

// Returns the number of dimensions that all of these lists have a number for; nullopt if they
// differ, or it is none of 1 to 3.
std::optional<size_t> dimensions_of(const std::vector<Value*>& lists) {
  std::optional<size_t> dimensions;
  for (auto* list : lists) {
    const auto length = known_length_of(list);
    if (!length || *length < 1 || *length > 3 || (dimensions && *dimensions != *length))
      return std::nullopt;
    dimensions = length;
  }
  return dimensions;
}

// Returns the result of the operator that the node stands for; nullptr if that is not known.
Value* restored(Node* node, Graph& graph) {
  static const std::array<c10::Symbol, 3> convolutions{c10::aten::conv1d, c10::aten::conv2d,
                                                       c10::aten::conv3d};
  static const std::array<c10::Symbol, 3> transposed_convolutions{
      c10::aten::conv_transpose1d, c10::aten::conv_transpose2d, c10::aten::conv_transpose3d};
  auto* const input = node->input(0);
  auto* const weight = node->input(1);
  auto* const bias = node->input(2);
  auto* const stride = node->input(3);
  auto* const padding = node->input(4);
  auto* const dilation = node->input(5);
  if (node->kind() == mode_symbol()) {
    const auto dimensions = dimensions_of({stride, dilation});
    if (!dimensions)
      return nullptr;
    return graph.insert(convolutions.at(*dimensions - 1),
                        {input, weight, bias, stride, padding, dilation, node->input(6)});
  }
  const auto transposed = torch::jit::toIValue(node->input(6));
  const auto dimensions = dimensions_of({stride, padding, dilation});
  if (!transposed || !dimensions)
    return nullptr;
  auto* const output_padding = node->input(7);
  auto* const groups = node->input(8);
  if (!transposed->toBool())
    return graph.insert(convolutions.at(*dimensions - 1),
                        {input, weight, bias, stride, padding, dilation, groups});
  return graph.insert(transposed_convolutions.at(*dimensions - 1),
                      {input, weight, bias, stride, padding, output_padding, groups, dilation});
}

}  // namespace

void restore_convolutions(Graph& graph) {
  std::vector<Node*> found;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == convolution_symbol() || node->kind() == mode_symbol())
      found.push_back(node);
  });
  for (auto* node : found) {
    const torch::jit::WithInsertPoint guard(node);
    auto* result = restored(node, graph);
    if (result == nullptr)
      continue;
    result->node()->copyMetadata(node);
    result->node()->copyAttributes(*node);
    node->output()->replaceAllUsesWith(result);
    result->copyMetadata(node->output());
    node->destroy();
  }
}

}  // namespace aten_recompute
