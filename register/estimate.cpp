// estimate and profile for Python. python/aten_recompute/_estimate.py calls them.
#include <aten_recompute/estimate.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <torch/csrc/jit/runtime/operator.h>

#include <string>
#include <vector>

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;

EstimateOptions pop_options(Stack& stack) {
  EstimateOptions options;
  options.options = pop(stack).toStringRef();
  options.device = pop(stack).toStringRef();
  options.method = pop(stack).toStringRef();
  return options;
}

void estimate_from_python(Stack& stack) {
  const auto options = pop_options(stack);
  std::vector<std::string> budgets;
  for (const auto& budget : pop(stack).toListRef().vec())
    budgets.push_back(budget.toStringRef());
  const auto inputs = pop(stack).toListRef().vec();
  const torch::jit::Module module(pop(stack).toObject());
  stack.emplace_back(estimate(module, inputs, budgets, options));
}

void profile_from_python(Stack& stack) {
  const auto options = pop_options(stack);
  const auto meta = pop(stack).toBool();
  const auto inputs = pop(stack).toListRef().vec();
  const torch::jit::Module module(pop(stack).toObject());
  stack.emplace_back(profile(module, inputs, meta, options));
}

const torch::jit::RegisterOperators kEstimateOperators({
    torch::jit::Operator("aten_recompute::estimate(Any module, Any[] inputs, str[] budgets, "
                         "str method, str device, str options) -> str",
                         estimate_from_python, c10::AliasAnalysisKind::CONSERVATIVE),
    torch::jit::Operator("aten_recompute::profile(Any module, Any[] inputs, bool meta, "
                         "str method, str device, str options) -> str",
                         profile_from_python, c10::AliasAnalysisKind::CONSERVATIVE),
});

}  // namespace
}  // namespace aten_recompute
