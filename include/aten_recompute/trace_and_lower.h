// Planned regions for a program that trains a torch::nn network in C++ and never saw TorchScript.
//
//   Net net;  // a torch::nn module
//   auto forward = aten_recompute::trace_and_lower(
//       [net](std::vector<c10::IValue> inputs) mutable -> c10::IValue {
//         return net->forward(inputs[0].toTensor());
//       },
//       {x}, R"({"strategy": "budget", "memory_budget": 0.4})", {net.ptr()});
//   auto loss = torch::mse_loss(forward({x}).toTensor(), y);
//   loss.backward();  // into the parameters of net
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace aten_recompute {

/// A function that runs planned. Copies share what they traced. Thread-safe as far as the function
/// itself is; calls on several threads that trace wait for each other.
struct TracedFunction {
  using Function = std::function<c10::IValue(std::vector<c10::IValue>)>;

  c10::IValue operator()(std::vector<c10::IValue> inputs) const { return call(std::move(inputs)); }

  Function call;
  /// Returns the lowered modules that have been made so far, one for each different trace. report()
  /// and plan() take them.
  std::function<std::vector<torch::jit::Module>()> modules;
};

/// Traces `fn` on `example_inputs`, plans what it runs by `options` (those of lower()), and returns
/// a function that does the same for other inputs. Inputs and results are tensors, or lists and
/// tuples of them; other inputs are constants of a trace.
///
/// `modules` are those whose parameters and buffers `fn` reads. Gradients go to these very
/// parameters, and buffers are updated. Each call looks at them: parameters that were replaced,
/// moved, converted or tied are found, unless only a module's member was assigned and not what is
/// registered.
///
/// A trace has what C++ decides in it: sizes, flags, branches and loops. So `fn` is traced again
/// for inputs of other sizes, types or structure, for other types and sizes of parameters, and for
/// other modes (train() and eval()) of the modules. What data or other variables decide is that of
/// the first call: a warning says where `fn` reads a value of a tensor. A trace runs `fn` once, and
/// restores random states and buffers after it; what else `fn` does, such as printing, happens. The
/// trace of `example_inputs` runs with gradients, so it needs the memory of an unplanned forward.
///
/// Throws what `fn` throws. Throws std::invalid_argument with one line where the options are
/// invalid, where `fn` reads a tensor that requires a gradient and that is neither an input nor a
/// parameter of `modules`, where it switches gradients off (detach() is what a trace knows), and
/// where a result is no tensor.
TracedFunction trace_and_lower(TracedFunction::Function fn,
                               const std::vector<c10::IValue>& example_inputs,
                               const std::string& options = "",
                               std::vector<std::shared_ptr<torch::nn::Module>> modules = {});

}  // namespace aten_recompute
