#include "runtime/path_check.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <stdexcept>
#include <utility>

#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

void check_path(torch::jit::Stack& stack) {
  const int64_t place = torch::jit::pop(stack).toInt();
  const bool expected = torch::jit::pop(stack).toBool();
  const bool condition = torch::jit::pop(stack).toBool();
  if (condition == expected)
    return;
  // The interpreter turns what an operator throws into an error of its own type, so the type of the
  // exception cannot say what happened.
  if (place == kRunAsScripted)
    note_all_paths_left("a value has other sizes than those for which the call was compiled");
  CallContext::current().path_left = place;
  throw std::runtime_error("the call takes another path than the one it was compiled for");
}

void is_same_tensor(torch::jit::Stack& stack) {
  const auto other = torch::jit::pop(stack).toTensor();
  const auto self = torch::jit::pop(stack).toTensor();
  // Operators that may return their operand return that or a copy, so this tells them apart, and it
  // holds for the tensors without elements of a profile, too.
  stack.emplace_back(self.is_alias_of(other) && self.sizes() == other.sizes() &&
                     self.strides() == other.strides() &&
                     self.storage_offset() == other.storage_offset());
}

}  // namespace

void register_path_operators() {
  static const torch::jit::RegisterOperators registered({
      torch::jit::Operator(
          "aten_recompute::check_path(bool condition, bool expected, int place) -> ()", check_path,
          c10::AliasAnalysisKind::CONSERVATIVE),
      torch::jit::Operator("aten_recompute::is_same_tensor(Tensor self, Tensor other) -> bool",
                           is_same_tensor, c10::AliasAnalysisKind::PURE_FUNCTION),
  });
}

void note_all_paths_left(const char* reason) {
  auto& context = CallContext::current();
  if (context.path_left)
    return;
  context.path_left = kRunAsScripted;
  context.why_all_paths_left = reason;
}

void leave_all_paths(const char* reason) {
  note_all_paths_left(reason);
  throw std::runtime_error(reason);
}

const char* why_all_paths_left() {
  return CallContext::current().why_all_paths_left;
}

std::optional<int64_t> path_left() {
  return std::exchange(CallContext::current().path_left, std::nullopt);
}

}  // namespace aten_recompute
