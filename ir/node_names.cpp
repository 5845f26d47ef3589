#include "ir/node_names.h"

#include <torch/csrc/jit/ir/ir.h>

namespace aten_recompute {

using torch::jit::Node;

std::string qualified_operator_name(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return node->kind().toQualString();
  if (schema->overload_name().empty())
    return schema->name();
  return schema->name() + "." + schema->overload_name();
}

std::string location_of(const Node* node) {
  const auto position = node->sourceRange().file_line_col();
  if (!position)
    return "";
  return std::get<0>(*position) + ":" + std::to_string(std::get<1>(*position));
}

}  // namespace aten_recompute
