#include "rules/user_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

struct Store {
  std::mutex mutex;
  std::shared_ptr<const UserRules> rules = std::make_shared<const UserRules>();
  // A rule that was found may still be in use, so none is ever freed.
  std::vector<std::shared_ptr<const UserRule>> every_rule;
  std::atomic<bool> is_empty = true;
};

Store& store() {
  static Store instance;
  return instance;
}

at::Tensor gradient_of_rule(const std::optional<at::Tensor>& given,
                            const std::vector<int64_t>& size, int64_t dtype,
                            const at::Device& device, const std::string& what) {
  const auto type = static_cast<at::ScalarType>(dtype);
  if (!given.has_value() || !given->defined())
    return at::zeros(size, at::TensorOptions().dtype(type).device(device));
  auto gradient = *given;
  if (gradient.sizes() != at::IntArrayRef(size)) {
    TORCH_CHECK(at::is_expandable_to(size, gradient.sizes()), what, " has sizes ", gradient.sizes(),
                ", but the argument has ", at::IntArrayRef(size));
    gradient = at::sum_to(std::move(gradient), size);
  }
  TORCH_CHECK(gradient.device() == device, what, " is on ", gradient.device(),
              ", but the argument is on ", device);
  if (gradient.is_complex() && !at::isComplexType(type))
    gradient = at::real(gradient);
  return gradient.scalar_type() == type ? gradient : gradient.to(type);
}

const UserRules* rules_in_use() {
  return static_cast<const UserRules*>(CallContext::current().user_rules);
}

}  // namespace

std::shared_ptr<const UserRules> registered_rules() {
  const std::lock_guard<std::mutex> lock(store().mutex);
  return store().rules;
}

bool add_user_rule(std::shared_ptr<const UserRule> rule, bool replace) {
  const std::lock_guard<std::mutex> lock(store().mutex);
  if (!replace && store().rules->count(rule->rule.op) != 0)
    return false;
  auto rules = std::make_shared<UserRules>(*store().rules);
  if (rule->is_empty())
    rules->erase(rule->rule.op);
  else
    (*rules)[rule->rule.op] = rule;
  store().every_rule.push_back(std::move(rule));
  set_registered_facts_lookup([](const torch::jit::Node* node) -> const RegisteredFacts* {
    const auto* found = user_rule(node);
    return found == nullptr ? nullptr : &found->facts;
  });
  store().rules = std::move(rules);
  store().is_empty = false;
  return true;
}

UseRules::UseRules(std::shared_ptr<const UserRules> rules)
    : rules_(std::move(rules)), previous_(rules_in_use()) {
  CallContext::current().user_rules = rules_.get();
}

UseRules::~UseRules() {
  CallContext::current().user_rules = previous_;
}

const UserRule* user_rule(const torch::jit::Node* node) {
  if (store().is_empty || node->maybeSchema() == nullptr)
    return nullptr;
  const auto now = rules_in_use() == nullptr ? registered_rules() : nullptr;
  const auto& rules = now != nullptr ? *now : *rules_in_use();
  const auto found = rules.find(qualified_operator_name(node));
  return found == rules.end() ? nullptr : found->second.get();
}

torch::jit::Value* insert_gradient_check(torch::jit::Value* gradient, torch::jit::Value* argument,
                                         const std::string& op, const std::string& argument_name) {
  if (gradient->type()->kind() == c10::TypeKind::NoneType)
    return nullptr;
  if (!is_tensor_type(*argument->type()))
    return gradient;  // a list, whose elements are summed without a check
  auto& graph = *gradient->owningGraph();
  if (argument->type()->kind() ==
      c10::TypeKind::OptionalType)  // not None, because it requires grad
    argument = graph.insertUncheckedCast(argument, c10::TensorType::get());
  auto* size = graph.insert(c10::aten::size, {argument});
  auto* dtype = graph.insert(c10::prim::dtype, {argument});
  auto* device = graph.insert(c10::prim::device, {argument});
  return graph.insert(c10::Symbol::fromQualString("aten_recompute::gradient_of_rule"),
                      {gradient, size, dtype, device,
                       graph.insertConstant(op + ": the gradient of " + argument_name)});
}

void register_user_rule_operators() {
  using torch::jit::Node;
  static const torch::jit::RegisterOperators registered({
      torch::jit::Operator(
          symbols::kRuleFunction,
          [](const Node* node) -> torch::jit::Operation {
            const torch::jit::Code code(node->g(c10::attr::Subgraph), "rule_function");
            return [code](torch::jit::Stack& stack) {
              const auto count = code.num_inputs();
              torch::jit::Stack own(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
              torch::jit::drop(stack, count);
              torch::jit::InterpreterState(code).run(own);
              for (auto& output : own)
                stack.push_back(std::move(output));
            };
          },
          c10::AliasAnalysisKind::PURE_FUNCTION),
      pure_operator("aten_recompute::gradient_of_rule(Tensor? grad, int[] size, int dtype, Device "
                    "device, str what) -> Tensor",
                    &gradient_of_rule),
  });
}

}  // namespace aten_recompute
