// One training step of a method.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace aten_recompute::command {

// What becomes of the gradients of parameters after a step.
enum class Gradients {
  kDropped,  // the next step makes new ones
  kKept,     // the next step adds to them
};

// Returns the tensors in the value that need a gradient, as those of lists, tuples and dicts.
// Throws Failure(kStepFailed) that names the method if there is none.
std::vector<at::Tensor> results_with_gradient(const c10::IValue& value, const std::string& method);

// Runs the method and the backward of the sum of its results. Throws what the method throws, and
// Failure(kStepFailed) if no result needs a gradient.
void run_step(torch::jit::Module& module, const std::string& method,
              const std::vector<c10::IValue>& inputs, Gradients gradients = Gradients::kDropped);

}  // namespace aten_recompute::command
