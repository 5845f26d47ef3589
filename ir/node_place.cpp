#include "ir/node_place.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"

namespace aten_recompute {

void copy_place(const torch::jit::Node* from, torch::jit::Node* to) {
  if (from->hasAttribute(symbols::kLayer))
    to->i_(symbols::kLayer, from->i(symbols::kLayer));
  if (from->hasAttribute(symbols::kModulePath))
    to->s_(symbols::kModulePath, from->s(symbols::kModulePath));
}

std::string module_path_of(const torch::jit::Node* node) {
  return node->hasAttribute(symbols::kModulePath) ? node->s(symbols::kModulePath) : "";
}

}  // namespace aten_recompute
