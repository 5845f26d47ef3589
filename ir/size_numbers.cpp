#include "ir/size_numbers.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

class SizeNumbers {
 public:
  bool decides_sizes(const Value* number) {
    if (!seen_.insert(number).second)
      return false;
    return std::any_of(number->uses().begin(), number->uses().end(),
                       [&](const torch::jit::Use& use) { return is_size(number, use); });
  }

 private:
  bool is_size(const Value* number, const torch::jit::Use& use) {
    const auto* node = use.user;
    if (node->kind() == c10::prim::Return)
      return false;
    if (!node->blocks().empty() || node->hasAttribute(c10::attr::Subgraph))
      return true;
    const auto outputs = node->outputs();
    const bool makes_tensors = std::any_of(outputs.begin(), outputs.end(), [](const Value* output) {
      return contains_tensor(*output->type());
    });
    if (makes_tensors)
      return is_taken_as_size(number, *node);
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const Value* output) { return decides_sizes(output); });
  }

  static bool is_taken_as_size(const Value* number, const Node& node) {
    const std::string_view name = node.kind().toUnqualString();
    if (node.kind() == c10::aten::arange || name.starts_with("upsample") ||
        name.starts_with("_upsample") || name.find("interpolate") != std::string_view::npos)
      return true;
    const auto* schema = node.maybeSchema();
    if (schema == nullptr)
      return true;
    for (size_t i = 0; i < std::min(node.inputs().size(), schema->arguments().size()); ++i) {
      auto type = schema->arguments()[i].type();
      if (node.input(i) != number || says_which_part(node, schema->arguments()[i].name()))
        continue;
      if (auto optional = type->cast<c10::OptionalType>())
        type = optional->getElementType();
      if (auto list = type->cast<c10::ListType>())
        type = list->getElementType();
      if (type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::SymIntType)
        return true;
    }
    return false;
  }

  // Returns whether this argument does not change how large the result is.
  static bool says_which_part(const Node& node, std::string_view argument) {
    if (node.kind() == c10::aten::slice && argument == "end")
      return node.input(2)->node()->kind() != c10::prim::Constant;  // the start moves, too
    return argument == "index" || argument == "start" || argument == "dim" || argument == "dim0" ||
           argument == "dim1";
  }

  std::unordered_set<const Value*> seen_;
};

}  // namespace

std::vector<bool> numbers_that_decide_sizes(const torch::jit::Graph& graph) {
  std::vector<bool> decide;
  for (const auto* input : graph.inputs()) {
    const auto kind = input->type()->kind();
    const bool is_number = kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType;
    decide.push_back(is_number && SizeNumbers().decides_sizes(input));
  }
  return decide;
}

}  // namespace aten_recompute
