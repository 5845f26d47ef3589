#include "passes/frontend/path/method_memory.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/write_back.h"

namespace aten_recompute {
namespace {

using torch::jit::Value;

// Returns whether the value, and views of it, are written back, and nothing else reads them.
bool is_only_written_back(const Value* value) {
  const auto& uses = value->uses();
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    if (use.user->kind() == kWriteBack)
      return use.offset == 1;
    return is_pure_view(use.user) && use.user->outputs().size() == 1 &&
           is_only_written_back(use.user->output());
  });
}

// Returns whether the method has made the value's memory for its regions to read.
bool is_copied(const Value* value) {
  const auto* node = value->node();
  while (node->hasAttribute(symbols::kBeforeRegions) &&
         (node->kind() == c10::aten::requires_grad_ || is_pure_view(node)))
    node = node->input(0)->node();
  return node->hasAttribute(symbols::kBeforeRegions);
}

}  // namespace

MethodMemory method_memory_around(const torch::jit::Node* region) {
  MethodMemory memory;
  for (size_t i = 0; i < region->inputs().size(); ++i) {
    if (is_copied(region->input(i)))
      memory.copies.push_back(i);
  }
  for (size_t i = 0; i < region->outputs().size(); ++i) {
    if (is_only_written_back(region->output(i)))
      memory.written_back.push_back(i);
  }
  return memory;
}

int64_t bytes_of_copies(const MethodMemory& memory, const std::vector<c10::IValue>& inputs) {
  int64_t bytes = 0;
  for (const auto copy : memory.copies)
    bytes += static_cast<int64_t>(inputs.at(copy).toTensor().storage().nbytes());
  return bytes;
}

}  // namespace aten_recompute
