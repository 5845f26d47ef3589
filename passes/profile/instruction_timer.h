// Times instructions of a program.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "passes/profile/warm_up.h"
#include "runtime/program.h"

namespace aten_recompute {

class InstructionTimer {
 public:
  // `inputs` are the region's. If one of them is on an accelerator, times include waiting for the
  // device of the first such input.
  explicit InstructionTimer(const std::vector<c10::IValue>& inputs);

  // Runs the instruction once and returns the seconds that this took. `stack` holds the operands
  // before and the results after.
  double run(const Program::Instruction& instruction, torch::jit::Stack& stack) const;

  // Returns the seconds that a run takes which is not the first; the first took `first_seconds`,
  // of which some go into loading code and filling caches. Runs the instruction again on
  // `arguments`, unless enough is known of its operator and repeated runs have taken long.
  double settled_seconds(const Program::Instruction& instruction, const torch::jit::Node* node,
                         const torch::jit::Stack& arguments, double first_seconds);

 private:
  void synchronize() const;

  std::optional<at::Device> device_;
  WarmUp warm_up_;
  double repeated_seconds_ = 0.0;
};

}  // namespace aten_recompute
