#include "rules/autocast_probe.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/autograd_modes.h"
#include "runtime/call_context.h"
#include "runtime/map_tensors.h"

namespace aten_recompute {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

// A key above those of autocast that PyTorch has for modes written in C++, and uses in its own
// tests only.
constexpr auto kObserver = DispatchKey::TESTING_ONLY_GenericWrapper;

DispatchKey autocast_key(c10::DeviceType device) {
  return device == at::kCUDA ? DispatchKey::AutocastCUDA : DispatchKey::AutocastCPU;
}

// Ends the run of autocast's kernel once its arguments are known.
struct ArgumentsAreKnown : std::exception {};

// Stands for a tensor: autocast looks at types and devices alone, so all sizes are 1.
at::Tensor stand_in_for(const at::Tensor& tensor, c10::DeviceType device) {
  const std::vector<int64_t> sizes(static_cast<size_t>(tensor.dim()), 1);
  return at::zeros(sizes, tensor.options().device(device));
}

// What autocast's kernel calls. The innermost one of a thread observes.
class Observer {
 public:
  explicit Observer(const OperatorHandle& op)
      : target(op), outer_(std::exchange(CallContext::current().autocast_observer, this)) {}
  ~Observer() { CallContext::current().autocast_observer = outer_; }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  const OperatorHandle& target;  // whose arguments are wanted
  Stack arguments;

 private:
  void* outer_;
};

void observe(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  auto* const observer = static_cast<Observer*>(CallContext::current().autocast_observer);
  // A kernel of autocast switches autocast off and calls the operator anew.
  if (observer != nullptr && observer->target == op &&
      c10::impl::tls_is_dispatch_key_excluded(DispatchKey::AutocastCPU) &&
      c10::impl::tls_is_dispatch_key_excluded(DispatchKey::AutocastCUDA)) {
    const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
    observer->arguments.assign(stack->end() - count, stack->end());
    throw ArgumentsAreKnown();
  }
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kObserver), stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&observe>());
}

}  // namespace

// Returns whether the operator calls others, for each device and for autograd.
bool is_composed(const OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

// Returns whether the operator's result has the elements of its argument, unchanged.
bool only_moves(const OperatorHandle& op) {
  static const std::unordered_set<std::string> copies{"aten::clone", "aten::_unsafe_view",
                                                      "aten::_reshape_copy"};
  if (copies.count(op.schema().name()) != 0)
    return true;
  const auto& returns = op.schema().returns();
  return !op.schema().is_mutable() && !returns.empty() &&
         std::all_of(returns.begin(), returns.end(),
                     [](const c10::Argument& result) { return result.alias_info() != nullptr; });
}

// Returns whether autocast has changed an argument.
bool has_other_types(const Stack& arguments, const Stack& given) {
  const auto types = [](const Stack& stack) {
    std::vector<c10::ScalarType> types;
    for (const auto& argument : stack) {
      map_tensors(argument, [&](const at::Tensor& tensor) {
        types.push_back(tensor.scalar_type());
        return tensor;
      });
      // Of other values, autocast sets no more than a type that was left out.
      types.push_back(argument.isNone() ? c10::ScalarType::Undefined : c10::kBool);
    }
    return types;
  };
  return types(arguments) != types(given);
}

bool has_autocast_kernel(const OperatorHandle& op, c10::DeviceType device) {
  return op.hasKernelForDispatchKey(autocast_key(device));
}

std::optional<Stack> arguments_under_autocast(const OperatorHandle& op, const Stack& arguments,
                                              c10::DeviceType device) {
  Stack stack;
  for (const auto& argument : arguments)
    stack.push_back(map_tensors(
        argument, [&](const at::Tensor& tensor) { return stand_in_for(tensor, device); }));
  Observer observer(op);
  try {
    const WithoutAutograd no_autograd;
    const c10::impl::IncludeDispatchKeyGuard include(kObserver);
    op.callBoxed(&stack);
  } catch (const ArgumentsAreKnown&) {
    return std::move(observer.arguments);
  } catch (const std::exception&) {
    // The kernel refuses the operator, or calls another one, which refuses the sizes.
  }
  return std::nullopt;
}

WatchForCasts::WatchForCasts(c10::DeviceType device, const AutocastState& autocast)
    : device_(device),
      autocast_(autocast),
      outer_(std::exchange(CallContext::current().cast_watch, this)) {}

WatchForCasts::~WatchForCasts() {
  CallContext::current().cast_watch = outer_;
}

WatchForCasts::Seen::Seen(const OperatorHandle& op, const Stack& stack) {
  auto* const watch = static_cast<WatchForCasts*>(CallContext::current().cast_watch);
  if (watch == nullptr || watch->is_suspended_)
    return;
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  watch->note(op, Stack(stack.end() - count, stack.end()));
  if (!has_autocast_kernel(op, watch->device_))
    return;
  watch->is_suspended_ = true;
  watch_ = watch;
}

WatchForCasts::Seen::~Seen() {
  if (watch_ != nullptr)
    watch_->is_suspended_ = false;
}

void WatchForCasts::note(const OperatorHandle& op, const Stack& arguments) {
  if (!has_autocast_kernel(op, device_)) {
    // What an operator is composed of is seen by itself.
    computes_ = computes_ || !(is_composed(op) || only_moves(op));
    if (computes_)
      type_ = std::nullopt;
    return;
  }
  const WithAutocast settings(autocast_);
  const auto given = arguments_under_autocast(op, arguments, device_);
  if (given && !has_other_types(arguments, *given))
    return;
  has_seen_ = true;
  if (!given) {
    computes_ = true;
    type_ = std::nullopt;
    return;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) {
      note_cast(arguments[i].toTensor(), given->at(i).toTensor());
    } else if (arguments[i].isTensorList()) {
      const auto tensors = arguments[i].toTensorVector();
      const auto wanted = given->at(i).toTensorVector();
      for (size_t k = 0; k < tensors.size(); ++k)
        note_cast(tensors[k], wanted[k]);
    } else if (arguments[i].isNone() != given->at(i).isNone()) {
      computes_ = true;
      type_ = std::nullopt;
    }
  }
}

void WatchForCasts::note_cast(const at::Tensor& given, const at::Tensor& wanted) {
  if (!given.defined() || given.scalar_type() == wanted.scalar_type())
    return;
  ++num_casts_;
  ++cast_[given.unsafeGetTensorImpl()];
  const auto type = wanted.scalar_type();
  computes_ = computes_ || (type_ && *type_ != type);
  type_ = computes_ ? std::nullopt : std::optional(type);
}

}  // namespace aten_recompute
