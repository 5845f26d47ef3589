#include "runtime/branch.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <memory>
#include <unordered_set>
#include <vector>

#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Stack;

const void* memory_of(const c10::IValue& value) {
  const bool has_memory =
      value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage();
  return has_memory ? value.toTensor().storage().unsafeGetStorageImpl() : nullptr;
}

class Branch {
 public:
  explicit Branch(const torch::jit::Node* node)
      : code_(std::make_shared<torch::jit::Code>(node->g(c10::attr::Subgraph), "branch")),
        num_operands_(node->inputs().size()) {
    for (const auto* output : node->outputs())
      is_tensor_.push_back(output->type()->kind() == c10::TypeKind::TensorType);
  }

  void operator()(Stack& stack) const {
    Stack values(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(num_operands_)),
                 std::make_move_iterator(stack.end()));
    torch::jit::drop(stack, num_operands_);
    std::unordered_set<const void*> taken;
    for (const auto& operand : values)
      taken.insert(memory_of(operand));
    torch::jit::InterpreterState(*code_).run(values);
    for (size_t i = 0; i < values.size(); ++i) {
      auto& result = values[i];
      // A block that leaves a loop or the method does not set what only the other one's code reads.
      if (is_tensor_[i] && result.isNone())
        result = at::Tensor();
      const void* memory = memory_of(result);
      if (memory != nullptr && !taken.insert(memory).second)
        result = result.toTensor().clone();
      stack.push_back(std::move(result));
    }
  }

 private:
  std::shared_ptr<torch::jit::Code> code_;
  size_t num_operands_;
  std::vector<bool> is_tensor_;  // per result
};

}  // namespace

void register_branch_operator() {
  static const torch::jit::RegisterOperators registered({torch::jit::Operator(
      symbols::kBranch,
      [](const torch::jit::Node* node) -> torch::jit::Operation { return Branch(node); },
      c10::AliasAnalysisKind::PURE_FUNCTION)});
}

}  // namespace aten_recompute
