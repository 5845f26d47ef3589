// register_rule for Python. python/aten_recompute/_rules.py passes each function as a module with
// this function as its forward.
#include <aten_recompute/register_rule.h>
#include <aten_recompute/register_shape.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <torch/csrc/jit/runtime/operator.h>

#include <string>

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;

const std::string kBackward = "backward:";  // followed by the arguments whose gradients it computes

std::vector<std::string> strings(const c10::IValue& list) {
  std::vector<std::string> texts;
  for (const auto& text : list.toListRef())
    texts.push_back(text.toStringRef());
  return texts;
}

void register_rule_from_python(Stack& stack) {
  OperatorRule rule;
  rule.replace = pop(stack).toBool();
  rule.recomputable = pop(stack).toBool();
  const auto random = pop(stack);
  if (random.isBool())
    rule.random = random.toBool();
  rule.extras = strings(pop(stack));
  const auto parameters = pop(stack).toList();
  const auto functions = pop(stack).toList();
  const auto roles = strings(pop(stack));
  const auto op = pop(stack).toStringRef();
  for (size_t i = 0; i < roles.size(); ++i) {
    const torch::jit::Module module(c10::IValue(functions.get(i)).toObject());
    RuleFunction function(module.get_method("forward").function(), strings(parameters.get(i)));
    if (roles[i] == "forward")
      rule.forward = function;
    else if (roles[i] == "replay")
      rule.replay = function;
    else if (roles[i] == "flops")
      rule.flops = function;
    else
      rule.backward.push_back({roles[i].substr(kBackward.size()), function});
  }
  register_rule(op, rule);
}

// Calls register_shape or register_flops.
template <auto function>
void register_function_from_python(Stack& stack) {
  const auto replace = pop(stack).toBool();
  const auto parameters = strings(pop(stack));
  const torch::jit::Module module(pop(stack).toObject());
  const auto op = pop(stack).toStringRef();
  function(op, RuleFunction(module.get_method("forward").function(), parameters), replace);
}

const torch::jit::RegisterOperators kRuleOperators({
    torch::jit::Operator(
        "aten_recompute::register_rule(str op, str[] roles, Any[] functions, str[][] parameters, "
        "str[] extras, bool? random, bool recomputable, bool replace) -> ()",
        register_rule_from_python, c10::AliasAnalysisKind::CONSERVATIVE),
    torch::jit::Operator("aten_recompute::register_shape(str op, Any function, "
                         "str[] parameters, bool replace) -> ()",
                         register_function_from_python<&register_shape>,
                         c10::AliasAnalysisKind::CONSERVATIVE),
    torch::jit::Operator("aten_recompute::register_flops(str op, Any function, "
                         "str[] parameters, bool replace) -> ()",
                         register_function_from_python<&register_flops>,
                         c10::AliasAnalysisKind::CONSERVATIVE),
});

}  // namespace
}  // namespace aten_recompute
