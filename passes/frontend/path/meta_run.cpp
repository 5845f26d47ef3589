#include "passes/frontend/path/meta_run.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "ir/graph_device.h"
#include "passes/frontend/rewrites/not_recordable.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

bool asks_for_device(const Node* node) {
  return node->kind() == c10::prim::device ||
         std::string(node->kind().toQualString()).rfind("prim::is_", 0) == 0;
}

}  // namespace

c10::IValue MetaRun::of(const c10::IValue& given) {
  try {
    auto copy = copies_.of(given);
    if (copies_.has_several_devices())
      throw NotRecordable("its tensors are on several devices");
    return copy;
  } catch (const std::invalid_argument& error) {
    throw NotRecordable(error.what());
  }
}

void MetaRun::prepare(const Node* node, torch::jit::Stack& operands) {
  written_.clear();
  if (const auto* schema = node->maybeSchema()) {
    const auto count = std::min(schema->arguments().size(), operands.size());
    for (size_t i = 0; i < count; ++i) {
      const auto* alias = schema->arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite() && is_defined_tensor(operands[i]))
        written_.emplace_back(operands[i].toTensor(), operands[i].toTensor()._version());
    }
  }
  if (asks_for_device(node) && !operands.empty() && is_defined_tensor(operands[0])) {
    const auto device = copies_.device().value_or(at::kCPU);
    operands[0] = at::empty({0}, operands[0].toTensor().options().device(device));
    return;
  }
  // Numbers that the method itself lists may decide something.
  if (node->kind() != c10::aten::tensor)
    put_on_meta(*node, operands);
  const bool has_meta = std::any_of(operands.begin(), operands.end(), [](const auto& operand) {
    return is_defined_tensor(operand) && operand.toTensor().is_meta();
  });
  if (!has_meta)
    return;
  for (auto& operand : operands) {  // constants of the method
    if (!is_defined_tensor(operand) || operand.toTensor().is_meta() ||
        operand.toTensor().dim() == 0)
      continue;
    constants_.push_back(operand.toTensor());
    operand = of(operand);
  }
}

void MetaRun::finish() {
  for (const auto& [tensor, version] : written_) {
    if (tensor._version() == version)
      tensor.unsafeGetTensorImpl()->bump_version();
  }
  written_.clear();
}

}  // namespace aten_recompute
