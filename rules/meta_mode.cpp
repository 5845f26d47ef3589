#include "rules/meta_mode.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>

#include "rules/autocast_probe.h"
#include "rules/shapes.h"
#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

// A key that PyTorch has for modes written in C++, and uses in its own tests only.
constexpr auto kMode = DispatchKey::TESTING_ONLY_GenericMode;
// A device for which ATen has no kernels of its own, so that operators are what they are composed
// of.
constexpr auto kComposed = DispatchKey::VE;

bool has_kernel(const OperatorHandle& op, DispatchKey key) {
  return op.hasKernelForDispatchKey(key);
}

// Returns the index of the first argument that the operator writes to; -1 if there is none.
int64_t first_written(const OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  const auto found = std::find_if(arguments.begin(), arguments.end(), [](const auto& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
  return found == arguments.end() ? -1 : found - arguments.begin();
}

// Replaces the operands by those that the operator writes to, which it returns.
void return_written(const OperatorHandle& op, Stack& stack) {
  const auto& arguments = op.schema().arguments();
  Stack written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite())
      written.push_back(torch::jit::peek(stack, i, arguments.size()));
  }
  torch::jit::drop(stack, arguments.size());
  written.resize(std::min(written.size(), op.schema().returns().size()));
  stack.insert(stack.end(), written.begin(), written.end());
}

bool is_recorded(const OperatorHandle& op, const Stack& stack) {
  if (!at::GradMode::is_enabled())
    return false;
  const auto count = op.schema().arguments().size();
  return std::any_of(
      stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(), [](const c10::IValue& value) {
        if (value.isTensor())
          return value.toTensor().defined() && value.toTensor().requires_grad();
        if (!value.isTensorList())
          return false;
        const auto tensors = value.toTensorVector();
        return std::any_of(tensors.begin(), tensors.end(),
                           [](const auto& tensor) { return tensor.requires_grad(); });
      });
}

bool has_meta_operand(const OperatorHandle& op, const Stack& stack) {
  const auto count = op.schema().arguments().size();
  return std::any_of(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(),
                     [](const c10::IValue& value) {
                       if (value.isDevice())
                         return value.toDevice().is_meta();
                       if (value.isTensor())
                         return value.toTensor().defined() && value.toTensor().is_meta();
                       if (!value.isTensorList())
                         return false;
                       const auto tensors = value.toTensorVector();
                       return std::any_of(tensors.begin(), tensors.end(),
                                          [](const auto& tensor) { return tensor.is_meta(); });
                     });
}

Stack operands_of(const OperatorHandle& op, const Stack& stack) {
  return torch::jit::last(stack, op.schema().arguments().size()).vec();
}

// Calls `run`, which runs an operator that is no composition, and counts its results alone. The
// operands live until then, as they do in a kernel, even if nothing else refers to them.
template <class Run>
void count_results(const OperatorHandle& op, Stack& stack, const Run& run) {
  const auto operands = operands_of(op, stack);
  {
    const PauseMetaMemory pause;
    run();
  }
  const auto count = std::min(op.schema().returns().size(), stack.size());
  for (auto result = stack.end() - static_cast<std::ptrdiff_t>(count); result != stack.end();
       ++result) {
    if (result->isTensor()) {
      count_meta_memory(result->toTensor());
    } else if (result->isTensorList()) {
      for (const auto& tensor : result->toTensorVector())
        count_meta_memory(tensor);
    }
  }
}

WatchForCasts::Seen see(const OperatorHandle& op, const Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard without_mode(kMode);
  return {op, stack};
}

// Runs what the operator is composed of. Returns false, and leaves the stack, if a part does not
// run on meta tensors.
bool run_parts(const OperatorHandle& op, DispatchKeySet keys, Stack& stack) {
  auto results = stack;
  try {
    op.redispatchBoxed(keys, &results);
  } catch (const std::exception&) {
    return false;
  }
  stack = std::move(results);
  return true;
}

void run(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto seen = see(op, *stack);
  const auto below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kMode);
  if (is_recorded(op, *stack) || !has_meta_operand(op, *stack)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  if (CallContext::current().expects_out_variant && first_written(op) >= 0) {
    CallContext::current().expects_out_variant = false;
    return_written(op, *stack);
    return;
  }
  if (WatchForCasts::sees_parts_of(op) && run_parts(op, below, *stack))
    return;
  if (const auto shape = shape_function_of(op.schema())) {
    auto operands = operands_of(op, *stack);
    const auto count = operands.size();
    if (shape(operands)) {
      torch::jit::drop(*stack, count);
      stack->insert(stack->end(), operands.begin(), operands.end());
      return;
    }
  }
  if (has_kernel(op, DispatchKey::CompositeExplicitAutogradNonFunctional)) {
    count_results(op, *stack, [&] {
      CallContext::current().expects_out_variant = true;
      op.redispatchBoxed(DispatchKeySet(kComposed), stack);
      CallContext::current().expects_out_variant = false;
    });
    return;
  }
  if (has_kernel(op, DispatchKey::CompositeExplicitAutograd)) {
    op.redispatchBoxed(DispatchKeySet(kComposed), stack);
    return;
  }
  if (has_kernel(op, DispatchKey::CompositeImplicitAutograd)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  if (first_written(op) == 0 && op.schema().name().back() == '_') {
    return_written(op, *stack);
    return;
  }
  count_results(op, *stack, [&] {
    const c10::impl::ExcludeDispatchKeyGuard without_mode(kMode);
    op.redispatchBoxed(below, stack);
  });
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
}

}  // namespace

MetaMode::MetaMode() : include_(kMode) {}

}  // namespace aten_recompute
