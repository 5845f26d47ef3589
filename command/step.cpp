#include "command/step.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "command/failure.h"

namespace aten_recompute::command {
namespace {

void find_results(const c10::IValue& value, std::vector<at::Tensor>& results) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (tensor.defined() && tensor.requires_grad())
      results.push_back(tensor);
  } else if (value.isTuple()) {
    for (const auto& each : value.toTupleRef().elements())
      find_results(each, results);
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef())
      find_results(each, results);
  } else if (value.isGenericDict()) {
    for (const auto& each : value.toGenericDict())
      find_results(each.value(), results);
  }
}

}  // namespace

std::vector<at::Tensor> results_with_gradient(const c10::IValue& value, const std::string& method) {
  std::vector<at::Tensor> results;
  find_results(value, results);
  if (results.empty())
    throw Failure(Exit::kStepFailed, "no result of " + method + " needs a gradient");
  return results;
}

void run_step(torch::jit::Module& module, const std::string& method,
              const std::vector<c10::IValue>& inputs, Gradients gradients) {
  auto results = results_with_gradient(module.get_method(method)(inputs), method);
  std::vector<at::Tensor> ones;
  for (const auto& result : results)
    ones.push_back(torch::ones({}, result.options()).expand(result.sizes()));
  results.shrink_to_fit();
  torch::autograd::backward(results, ones);
  if (gradients == Gradients::kKept)
    return;
  for (auto parameter : module.parameters())
    parameter.mutable_grad() = at::Tensor();
}

}  // namespace aten_recompute::command
