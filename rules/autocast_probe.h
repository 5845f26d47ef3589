// Finds out what autocast does to the operands of an operator, by asking its kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceType.h>

#include <optional>

#include "runtime/autocast.h"

namespace aten_recompute {

// Returns whether autocast has a kernel for the operator on this device.
bool has_autocast_kernel(const c10::OperatorHandle& op, c10::DeviceType device);

// Returns the arguments that autocast's kernel of the operator calls it with. `arguments` are meta
// tensors, and other values as they are; results stand for them, with the types that they are cast
// to, and with other values where the kernel sets some. Sizes are not those of the arguments.
// Returns nullopt where the kernel calls another operator, or refuses the operator. Autocast needs
// to be on, with the settings to ask for.
std::optional<torch::jit::Stack> arguments_under_autocast(const c10::OperatorHandle& op,
                                                          const torch::jit::Stack& arguments,
                                                          c10::DeviceType device);

// While it exists, operators that this thread runs under MetaMode (rules/meta_mode.h), be it inside
// of others, are watched.
class WatchForCasts {
 public:
  // Autocast is taken to have these settings.
  WatchForCasts(c10::DeviceType device, const AutocastState& autocast);
  ~WatchForCasts();
  WatchForCasts(const WatchForCasts&) = delete;
  WatchForCasts& operator=(const WatchForCasts&) = delete;

  // Returns whether autocast would have cast an operand of an operator that ran.
  bool has_seen_casts() const { return has_seen_; }

  // Tells the innermost instance of this thread, if there is one, that an operator runs with the
  // arguments at the end of the stack, which are meta tensors.
  static void see(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

 private:
  c10::DeviceType device_;
  AutocastState autocast_;
  bool has_seen_ = false;
  void* outer_;
};

}  // namespace aten_recompute
