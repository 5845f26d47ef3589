#include "passes/profile/instruction_timer.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "ir/node_names.h"
#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortSeconds = 2e-4;

// One profile may spend this long on repetitions that it could do without: a third one, and those
// of operators of which enough is known. They make the profile of a small region less sensitive to
// other programs on the machine, and are too short for a user to notice.
constexpr double kMoreRepeatsSeconds = 0.05;

// Returns the device of the first input on an accelerator.
std::optional<at::Device> first_accelerator(const std::vector<c10::IValue>& inputs) {
  for (const auto& input : inputs) {
    if (!input.isTensor() || !input.toTensor().defined())
      continue;
    const auto device = input.toTensor().device();
    if (!device.is_cpu() && !device.is_meta())
      return device;
  }
  return std::nullopt;
}

}  // namespace

InstructionTimer::InstructionTimer(const std::vector<c10::IValue>& inputs)
    : device_(first_accelerator(inputs)) {}

void InstructionTimer::synchronize() const {
  if (device_)
    c10::impl::VirtualGuardImpl(device_->type()).synchronizeDevice(device_->index());
}

double InstructionTimer::run(const Program::Instruction& instruction,
                             torch::jit::Stack& stack) const {
  synchronize();
  const auto start = Clock::now();
  instruction.run(stack);
  synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A first run takes from one half longer to, for a tenth of the short ones, more than twice as
// long. For runs of 0.2 ms and more, the second is within a tenth of the fastest of five. More runs
// would cost more than they are worth, because a user waits for them.
double InstructionTimer::settled_seconds(const Program::Instruction& instruction,
                                         const torch::jit::Node* node,
                                         const torch::jit::Stack& arguments, double first_seconds) {
  const bool is_short = first_seconds < kShortSeconds;
  const auto name = qualified_operator_name(node) + (is_short ? ", short" : ", long");
  const bool repeats_more = repeated_seconds_ + 3 * first_seconds < kMoreRepeatsSeconds;
  if (warm_up_.is_known(name) && !repeats_more)
    return warm_up_.without(name, first_seconds);
  auto seconds = first_seconds;
  for (int repeats = repeats_more ? 3 : is_short ? 2 : 1; repeats > 0; --repeats) {
    auto stack = arguments;
    const auto again = run(instruction, stack);
    repeated_seconds_ += again;
    seconds = std::min(seconds, again);
  }
  warm_up_.learn(name, first_seconds, seconds);
  return seconds;
}

}  // namespace aten_recompute
