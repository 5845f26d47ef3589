#include "runtime/write_back.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace aten_recompute {
namespace {

void write_back(torch::jit::Stack& stack) {
  const int64_t writes = torch::jit::pop(stack).toInt();
  const auto content = torch::jit::pop(stack).toTensor();
  const auto self = torch::jit::pop(stack).toTensor();
  self.copy_(content);
  for (int64_t i = 1; i < writes; ++i)
    self.unsafeGetTensorImpl()->bump_version();
  stack.emplace_back(self);
}

}  // namespace

void register_write_back_operator() {
  static const torch::jit::RegisterOperators registered({torch::jit::Operator(
      "aten_recompute::write_back(Tensor(a!) self, Tensor content, int writes) -> Tensor(a!)",
      write_back, c10::AliasAnalysisKind::FROM_SCHEMA)});
}

}  // namespace aten_recompute
