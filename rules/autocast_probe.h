// Finds out what autocast does to the operands of an operator, by asking its kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/autocast.h"

namespace aten_recompute {

// Returns whether autocast has a kernel for the operator on this device.
bool has_autocast_kernel(const c10::OperatorHandle& op, c10::DeviceType device);

// Returns whether the operator calls others, for each device and for autograd.
bool is_composed(const c10::OperatorHandle& op);

// What autocast's kernel of an operator does to its arguments.
struct AutocastArguments {
  torch::jit::Stack values;  // that the operator is called with
  // The indices of all arguments, in the order in which tensors are cast. C++ leaves open in which
  // order it evaluates the arguments of a call, so this depends on the compiler of LibTorch.
  std::vector<size_t> order;
};

// Returns what autocast's kernel of the operator calls it with. `arguments` are meta tensors, and
// other values as they are; results stand for them, with the types that they are cast to, and with
// other values where the kernel sets some. Sizes are not those of the arguments. Returns nullopt
// where the kernel calls another operator, or refuses the operator. Autocast needs to be on, with
// the settings to ask for.
std::optional<AutocastArguments> arguments_under_autocast(const c10::OperatorHandle& op,
                                                          const torch::jit::Stack& arguments,
                                                          c10::DeviceType device);

// While it exists, operators that this thread runs under MetaMode (rules/meta_mode.h) or
// SeeOperators, be it inside of others, are watched.
class WatchForCasts {
 public:
  // Autocast is taken to have these settings.
  WatchForCasts(c10::DeviceType device, const AutocastState& autocast);
  ~WatchForCasts();
  WatchForCasts(const WatchForCasts&) = delete;
  WatchForCasts& operator=(const WatchForCasts&) = delete;

  // Returns whether autocast would have cast an operand of an operator that ran.
  bool has_seen_casts() const { return has_seen_; }
  // Returns the type that was cast to, if it makes no difference whether operands are cast there or
  // before all that ran: nothing else but views and copies was computed. Otherwise nullopt.
  std::optional<c10::ScalarType> common_type() const { return type_; }
  // Returns how many casts there were.
  size_t num_casts() const { return num_casts_; }
  // Returns whether the innermost instance of this thread looks at what the operator is composed
  // of.
  static bool sees_parts_of(const c10::OperatorHandle& op);
  // Returns whether a single operator cast, and began with its last tensor.
  bool begins_with_last() const { return num_casting_ == 1 && begins_with_last_; }
  // Returns how many of them were of this very tensor, not of a view of it.
  size_t num_casts_of(const at::Tensor& tensor) const {
    const auto found = cast_.find(tensor.unsafeGetTensorImpl());
    return found == cast_.end() ? 0 : found->second;
  }

  // Tells the innermost instance of this thread, if there is one, that an operator runs with the
  // arguments at the end of the stack, which are meta tensors, as long as this object exists. What
  // runs within an operator that autocast has a kernel for, or that copies, is of no interest.
  class Seen {
   public:
    Seen(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
    ~Seen();
    Seen(const Seen&) = delete;
    Seen& operator=(const Seen&) = delete;

   private:
    WatchForCasts* watch_ = nullptr;  // that this operator suspends
  };

 private:
  void note(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
  void note_cast(const at::Tensor& given, const at::Tensor& wanted);

  c10::DeviceType device_;
  AutocastState autocast_;
  bool is_suspended_ = false;
  bool has_seen_ = false;
  bool computes_ = false;  // something that autocast does not cast
  std::optional<c10::ScalarType> type_;
  size_t num_casts_ = 0;
  size_t num_casting_ = 0;  // operators
  bool begins_with_last_ = false;
  std::unordered_map<const void*, size_t> cast_;
  void* outer_;
};

// While it exists, a WatchForCasts is told of operators that run on tensors with data.
class SeeOperators {
 public:
  SeeOperators();

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace aten_recompute
