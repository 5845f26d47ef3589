// Estimates the memory and time of a training step without running one.
//
//   auto model = torch::jit::load("model.pt");
//   std::cout << aten_recompute::estimate(model, {tokens, targets}, {"0.5", "600MiB"});
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace aten_recompute {

/// Options of estimate() and profile().
struct EstimateOptions {
  std::string method = "forward";
  /// The device on which the step would run: "cpu" or "cuda". If empty, it is that of the module's
  /// tensors, of the inputs where it has none, and the CPU where these are on the meta device.
  std::string device{};
  /// Further options of strategy budget as JSON, as lower() takes them: {"accumulate": true}.
  std::string options{};
};

/// Predicts the memory of one training step without running it. Nothing of the size of the module
/// is allocated: tensors are described by their sizes. The module and the inputs may have real
/// tensors or such of the meta device.
///
/// `budgets` are values of the option memory_budget, as text: "0.5", "40%", "600MiB".
///
/// Returns one JSON object (docs/profile.md): the peak with nothing recomputed, the smallest that
/// can be reached, and for each budget the predicted peak and the floating-point operations that
/// are recomputed.
///
/// Throws std::runtime_error with one line that names what is wrong: an invalid budget, option or
/// method, inputs that do not fit, a method in which data decide what is done, or an operator of
/// which the results are not known without running it.
std::string estimate(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                     const std::vector<std::string>& budgets = {},
                     const EstimateOptions& options = {});

/// Returns what the operators of one step cost, as JSON (docs/profile.md): for each node of forward
/// and backward its operator and module, the sizes, types and bytes of its results, the bytes that
/// the backward keeps of them, its floating-point operations, and the seconds that one run takes.
///
/// With `meta`, nothing runs and nothing is allocated, as in estimate(), and there are no seconds.
/// Otherwise the method runs once, and one operator of each kind is timed.
///
/// Throws as estimate() does, and what the method's operators throw.
std::string profile(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                    bool meta = false, const EstimateOptions& options = {});

}  // namespace aten_recompute
