#include "rules/autocast_probe.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <numeric>
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
  std::vector<const void*> read;  // the first tensors of the operators that the kernel has called

 private:
  void* outer_;
};

// Returns whether a kernel of autocast runs. It switches autocast off, and calls the operator anew.
bool is_in_autocast_kernel() {
  return c10::impl::tls_is_dispatch_key_excluded(DispatchKey::AutocastCPU) &&
         c10::impl::tls_is_dispatch_key_excluded(DispatchKey::AutocastCUDA);
}

void observe(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  auto* const observer = static_cast<Observer*>(CallContext::current().autocast_observer);
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  if (observer != nullptr && is_in_autocast_kernel()) {
    if (observer->target == op) {
      observer->arguments.assign(stack->end() - count, stack->end());
      throw ArgumentsAreKnown();
    }
    if (count > 0 && (stack->end() - count)->isTensor())
      observer->read.push_back((stack->end() - count)->toTensor().unsafeGetTensorImpl());
  }
  std::optional<WatchForCasts::Seen> seen;
  if (observer == nullptr)
    seen.emplace(op, *stack);
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kObserver), stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&observe>());
}

}  // namespace

bool is_composed(const OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
}

// Returns whether the operator copies its argument, unchanged.
bool copies(const OperatorHandle& op) {
  static const std::unordered_set<std::string> names{"aten::clone", "aten::_unsafe_view",
                                                     "aten::_reshape_copy"};
  return names.count(op.schema().name()) != 0;
}

// Returns whether the operator's result has the elements of its argument, unchanged.
bool only_moves(const OperatorHandle& op) {
  if (copies(op))
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

// Returns the indices of the arguments, those of tensors in the order in which they were read.
std::vector<size_t> order_of(const Stack& arguments, const std::vector<const void*>& read) {
  const auto position = [&](size_t i) {
    const auto& argument = arguments[i];
    const void* tensor = argument.isTensor() ? argument.toTensor().unsafeGetTensorImpl() : nullptr;
    return std::find(read.begin(), read.end(), tensor) - read.begin();
  };
  std::vector<size_t> order(arguments.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return position(a) < position(b); });
  return order;
}

std::optional<AutocastArguments> arguments_under_autocast(const OperatorHandle& op,
                                                          const Stack& arguments,
                                                          c10::DeviceType device) {
  Stack stack;
  for (const auto& argument : arguments)
    stack.push_back(map_tensors(
        argument, [&](const at::Tensor& tensor) { return stand_in_for(tensor, device); }));
  const auto stand_ins = stack;
  Observer observer(op);
  try {
    const WithoutAutograd no_autograd;
    const c10::impl::IncludeDispatchKeyGuard include(kObserver);
    op.callBoxed(&stack);
  } catch (const ArgumentsAreKnown&) {
    return AutocastArguments{std::move(observer.arguments), order_of(stand_ins, observer.read)};
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
  if (!has_autocast_kernel(op, watch->device_) && !copies(op))
    return;
  watch->is_suspended_ = true;
  watch_ = watch;
}

WatchForCasts::Seen::~Seen() {
  if (watch_ != nullptr)
    watch_->is_suspended_ = false;
}

bool WatchForCasts::sees_parts_of(const OperatorHandle& op) {
  const auto* const watch = static_cast<WatchForCasts*>(CallContext::current().cast_watch);
  return watch != nullptr && !watch->is_suspended_ && is_composed(op);
}

SeeOperators::SeeOperators() : include_(kObserver) {}

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
  if (given && !has_other_types(arguments, given->values)) {
    computes_ = computes_ || (!has_seen_ && !only_moves(op));
    return;
  }
  has_seen_ = true;
  ++num_casting_;
  if (!given) {
    computes_ = true;
    type_ = std::nullopt;
    return;
  }
  begins_with_last_ = given->order.front() != 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& wanted = given->values.at(i);
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) {
      note_cast(arguments[i].toTensor(), wanted.toTensor());
    } else if (arguments[i].isTensorList()) {
      const auto tensors = arguments[i].toTensorVector();
      const auto wanted_tensors = wanted.toTensorVector();
      for (size_t k = 0; k < tensors.size(); ++k)
        note_cast(tensors[k], wanted_tensors[k]);
    } else if (arguments[i].isNone() != wanted.isNone()) {
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
