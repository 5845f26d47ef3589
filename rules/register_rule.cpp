#include <aten_recompute/errors.h>
#include <aten_recompute/register_rule.h>
#include <aten_recompute/register_shape.h>

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "common/join.h"
#include "ir/functionalize.h"
#include "ir/graph_device.h"
#include "ir/node_traits.h"
#include "rules/registry.h"
#include "rules/script_source.h"
#include "rules/user_rules.h"
#include "rules/user_shapes.h"

namespace aten_recompute {
namespace {

[[noreturn]] void fail_to_register(const std::string& op, const std::string& message) {
  InvalidRuleError error(message);
  error.op = op;
  error.raise_as_invalid_argument();
}

using c10::TypeKind;
using c10::TypePtr;
using torch::jit::Graph;
using Names = std::map<std::string, TypePtr>;  // allowed names of parameters, and their types
using Types = std::vector<TypePtr>;

std::string first_line(const std::string& text) {
  const auto begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

// Returns e.g. "Tensor, int".
std::string to_string(const Types& types) {
  std::vector<std::string> parts;
  for (const auto& type : types)
    parts.push_back(type->annotation_str());
  return join(parts);
}

std::string numbered(const std::string& name, size_t i) {
  return i == 0 ? name : name + std::to_string(i);
}

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name()
                                        : schema.name() + "." + schema.overload_name();
}

bool may_have_gradient(const c10::Type& type) {
  if (is_tensor_type(type))
    return true;
  return type.kind() == TypeKind::ListType &&
         type.containedTypes()[0]->kind() == TypeKind::TensorType;
}

// Returns whether a forward can pass values of this type to a backward.
bool can_be_extra(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
    case TypeKind::NoneType:
      return true;
    case TypeKind::ListType:
    case TypeKind::OptionalType:
      return can_be_extra(*type.containedTypes()[0]);
    default:
      return false;
  }
}

bool writes(const torch::jit::Block* block) {
  for (const auto* node : block->nodes()) {
    if (mutates_an_argument(node) || node->kind() == c10::prim::SetAttr)
      return true;
    for (const auto* inner : node->blocks()) {
      if (writes(inner))
        return true;
    }
  }
  return false;
}

class RuleMaker {
 public:
  RuleMaker(std::string op, const OperatorRule& given, std::string who = "register_rule")
      : who_(std::move(who)), op_(std::move(op)), given_(given) {}

  std::shared_ptr<const UserRule> run() {
    find_operator();
    if (is_empty() && !given_.replace)
      fail("the rule is empty");
    made_->rule.op = full_name(*schema_);
    made_->rule.is_users = true;
    made_->rule.extras = given_.extras;
    made_->facts.random = given_.random;
    made_->facts.recomputable = given_.recomputable;
    check_replaced();
    if (!given_.backward.empty())
      check_returns_no_views();
    check_names();
    if (!given_.forward.empty())
      make_forward();
    for (const auto& backward : given_.backward)
      make_backward(backward);
    if (!given_.replay.empty())
      made_->replay = compile("replay", given_.replay, arguments(), {});
    if (made_->replay != nullptr)
      check_outputs("replay", results_of(*made_->replay), {});
    if (!given_.flops.empty())
      make_flops();
    made_->facts.has_replay = made_->replay != nullptr;
    made_->facts.has_gradients = !made_->rule.gradients.empty();
    return made_;
  }

  // Returns what register_shape() registers.
  std::shared_ptr<const UserFunction> make_shape(const RuleFunction& function) {
    find_operator();
    auto made = compile("shape", function, arguments(), {});
    check_outputs("shape", results_of(*made), {});
    put_on_meta(*made->graph);
    return std::make_shared<UserFunction>(
        UserFunction{made, std::make_shared<torch::jit::Code>(made->graph, "shape")});
  }

  // Returns what register_flops() registers.
  std::shared_ptr<const UserFunction> make_flops_alone() {
    find_operator();
    make_flops();
    return std::make_shared<UserFunction>(UserFunction{made_->flops, made_->flops_code});
  }

  std::string name() const { return full_name(*schema_); }
  [[noreturn]] void fail(const std::string& what) const {
    fail_to_register(op_, who_ + ": " + op_ + ": " + what);
  }

 private:
  bool is_empty() const {
    return given_.backward.empty() && given_.forward.empty() && given_.extras.empty() &&
           given_.replay.empty() && given_.flops.empty() && !given_.random && given_.recomputable;
  }

  // ---- the operator ----

  void find_operator() {
    const auto colons = op_.find("::");
    if (colons == std::string::npos || colons == 0 || colons + 2 == op_.size())
      fail("an operator is named \"namespace::name\" or \"namespace::name.overload\"");
    const auto dot = op_.find('.', colons);
    const auto name = op_.substr(0, dot);
    const auto overload = dot == std::string::npos ? "" : op_.substr(dot + 1);
    const auto symbol = c10::Symbol::fromQualString(name);
    if (symbol.is_prim() || op_.substr(0, colons) == "aten_recompute")
      fail("operators of " + op_.substr(0, colons) + " take no rules");
    std::vector<std::string> overloads;
    for (const auto& candidate : torch::jit::getAllOperatorsFor(symbol)) {
      if (!candidate->schema().is_mutable())
        overloads.push_back(full_name(candidate->schema()));
      if (candidate->schema().overload_name() == overload)
        operator_ = candidate;
    }
    if (operator_ == nullptr) {
      fail(overloads.empty() ? "there is no such operator: load the library that defines it first"
                             : "there is no such overload; there are " + join(overloads));
    }
    schema_ = &operator_->schema();
    if (schema_->is_vararg() || schema_->is_varret())
      fail("operators without a fixed number of arguments and results take no rules");
    if (schema_->is_mutable())
      fail("it writes to its arguments, and only functional operators are differentiated");
  }

  // Views that are outputs of a region are made outside the region, under ordinary autograd.
  void check_returns_no_views() const {
    for (const auto& each : schema_->returns()) {
      if (each.alias_info() != nullptr)
        fail("it returns views of its arguments, which autograd differentiates");
    }
  }

  void check_replaced() const {
    if (!given_.replace && has_builtin_rule(made_->rule.op))
      fail("aten_recompute has a rule for it already; replace = true puts yours in its place");
  }

  // Checks that all names that functions may use are distinct.
  void check_names() const {
    if (given_.forward.empty() && !given_.extras.empty())
      fail("extras (" + join(given_.extras) + ") are returned by a forward, and the rule has none");
    if (given_.backward.empty() && !given_.forward.empty())
      fail("a forward without a backward: nothing would read what it returns");
    if (given_.backward.empty())
      return;
    Names taken = gradients_and_results();
    for (const auto& argument : schema_->arguments())
      taken.emplace("needs_" + argument.name(), nullptr);
    for (const auto& argument : schema_->arguments()) {
      if (!taken.emplace(argument.name(), nullptr).second)
        fail("its argument \"" + argument.name() +
             "\" has the name of a gradient or result of a backward");
    }
    for (const auto& extra : given_.extras) {
      if (!taken.emplace(extra, nullptr).second)
        fail("an extra cannot be called \"" + extra + "\": that is the name of something else");
    }
  }

  Names arguments() const {
    Names names;
    for (const auto& argument : schema_->arguments())
      names.emplace(argument.name(), argument.type());
    return names;
  }

  Names arguments_and_needs() const {
    auto names = arguments();
    for (const auto& argument : schema_->arguments())
      names.emplace("needs_" + argument.name(), c10::BoolType::get());
    return names;
  }

  Names results() const {
    Names names;
    for (size_t i = 0; i < schema_->returns().size(); ++i)
      names.emplace(numbered("result", i), schema_->returns()[i].type());
    return names;
  }

  Names gradients_and_results() const {
    auto names = results();
    for (size_t i = 0; i < schema_->returns().size(); ++i) {
      if (is_tensor_type(*schema_->returns()[i].type()))
        names.emplace(numbered("grad", i), c10::TensorType::get());
    }
    if (!schema_->returns().empty() && schema_->returns()[0].type()->kind() == TypeKind::ListType)
      names.emplace("grads", c10::ListType::create(c10::OptionalType::ofTensor()));
    return names;
  }

  // ---- functions ----

  static std::vector<std::string> names_in(const Names& names) {
    std::vector<std::string> all;
    for (const auto& [name, type] : names)
      all.push_back(name);
    return all;
  }

  std::shared_ptr<Graph> graph_of(const std::string& role, const RuleFunction& function) const {
    if (function.graph() != nullptr)
      return function.graph()->copy();
    try {
      return compile_script(function.source());
    } catch (const std::exception& error) {
      fail(role + " does not compile: " + first_line(error.what()));
    }
  }

  // Compiles a function. Its parameters may have the names in `names` and `further`. `role` is for
  // error messages.
  std::shared_ptr<const CompiledFormula> compile(const std::string& role,
                                                 const RuleFunction& function, const Names& names,
                                                 const Names& further) const {
    auto compiled = std::make_shared<CompiledFormula>();
    compiled->graph = graph_of(role, function);
    auto& graph = compiled->graph;
    for (size_t i = 0; i < graph->inputs().size(); ++i) {
      auto* input = graph->inputs()[i];
      const auto name =
          function.graph() != nullptr ? function.parameters().at(i) : input->debugNameBase();
      auto found = names.find(name);
      if (found == names.end() && (found = further.find(name)) == further.end()) {
        auto known = names;
        known.insert(further.begin(), further.end());
        fail(role + " has a parameter \"" + name + "\", which is none of " + join(names_in(known)));
      }
      if (!found->second->isSubtypeOf(*input->type()))
        fail(role + "'s parameter \"" + name + "\" is declared " + input->type()->annotation_str() +
             ", but is " + found->second->annotation_str());
      compiled->parameters.push_back(name);
    }
    torch::jit::EraseShapeInformation(graph);
    torch::jit::LowerSimpleTuples(graph);
    functionalize(graph);
    torch::jit::EliminateDeadCode(graph);
    compiled->is_one_operator = writes(graph->block());
    if (compiled->is_one_operator)
      check_writes(role, *compiled);
    return compiled;
  }

  void check_writes(const std::string& role, const CompiledFormula& formula) const {
    const torch::jit::AliasDb aliases(formula.graph);
    for (size_t i = 0; i < formula.parameters.size(); ++i) {
      if (aliases.hasWriters(formula.graph->inputs()[i]))
        fail(role + " writes to its parameter \"" + formula.parameters[i] +
             "\", or to what may be a view of it");
    }
  }

  static Types results_of(const CompiledFormula& formula) {
    const auto outputs = formula.graph->outputs();
    if (outputs.size() == 1 && outputs[0]->type()->kind() == TypeKind::TupleType) {
      // The elements can have more precise types than the tuple, e.g. None.
      if (outputs[0]->node()->kind() != c10::prim::TupleConstruct)
        return outputs[0]->type()->containedTypes().vec();
      Types types;
      for (const auto* element : outputs[0]->node()->inputs())
        types.push_back(element->type());
      return types;
    }
    Types types;
    for (const auto* output : outputs)
      types.push_back(output->type());
    return types;
  }

  // Checks that `types` are the types of the operator's outputs, followed by `extras`.
  void check_outputs(const std::string& role, const Types& types,
                     const std::vector<std::string>& extras) const {
    const auto& returns = schema_->returns();
    std::vector<std::string> wanted;
    for (const auto& each : returns)
      wanted.push_back(each.type()->annotation_str());
    for (const auto& extra : extras)
      wanted.push_back(extra);
    bool fits = types.size() == wanted.size();
    for (size_t i = 0; fits && i < returns.size(); ++i)
      fits = types[i]->isSubtypeOf(*returns[i].type());
    if (!fits)
      fail(role + " returns (" + to_string(types) + "), expected (" + join(wanted) + ")");
  }

  void make_forward() {
    made_->rule.given_forward = compile("forward", given_.forward, arguments_and_needs(), {});
    const auto types = results_of(*made_->rule.given_forward);
    check_outputs("forward", types, given_.extras);
    for (size_t i = 0; i < given_.extras.size(); ++i) {
      const auto& type = types[schema_->returns().size() + i];
      if (!can_be_extra(*type))
        fail("the extra \"" + given_.extras[i] + "\" is " + type->annotation_str() +
             "; an extra is a tensor, a number, or a list or Optional of them");
      extra_types_.emplace(given_.extras[i], type);
    }
  }

  void make_backward(const OperatorRule::Backward& backward) {
    std::vector<std::string> targets = split_names(backward.arguments);
    std::string role = "backward";
    if (targets.empty()) {
      for (const auto& argument : schema_->arguments()) {
        if (may_have_gradient(*argument.type()))
          targets.push_back(argument.name());
      }
    } else {
      role += " of " + join(targets);
    }
    for (const auto& target : targets) {
      const auto index = schema_->argumentIndexWithName(target);
      if (!index)
        fail(role + ": there is no argument \"" + target + "\"; there are " +
             join(names_in(arguments())));
      if (!may_have_gradient(*schema_->arguments()[static_cast<size_t>(*index)].type()))
        fail(role + ": the argument \"" + target + "\" is not a tensor");
      if (!has_gradient_.emplace(target, nullptr).second)
        fail(role + ": two functions give the gradient of \"" + target + "\"");
    }
    auto names = arguments_and_needs();
    names.merge(gradients_and_results());
    auto compiled = compile(role, backward.function, names, extra_types_);
    const auto types = results_of(*compiled);
    if (types.size() != targets.size())
      fail(role + " returns " + std::to_string(types.size()) + " values (" + to_string(types) +
           "), expected one gradient for each of " + join(targets));
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto& argument =
          schema_->arguments()[static_cast<size_t>(*schema_->argumentIndexWithName(targets[i]))];
      const auto& wanted = is_tensor_type(*argument.type()) ? TypePtr(c10::OptionalType::ofTensor())
                                                            : TypePtr(c10::ListType::ofTensors());
      if (types[i]->kind() != TypeKind::NoneType && !types[i]->isSubtypeOf(*wanted))
        fail(role + " returns " + types[i]->annotation_str() + " as the gradient of \"" +
             targets[i] + "\", which is " + argument.type()->annotation_str());
    }
    made_->rule.gradients.push_back({.inputs = join(targets), .body = "", .compiled = compiled});
  }

  void make_flops() {
    made_->flops = compile("flops", given_.flops, arguments(), results());
    const auto types = results_of(*made_->flops);
    if (types.size() != 1 ||
        (types[0]->kind() != TypeKind::IntType && types[0]->kind() != TypeKind::FloatType &&
         types[0]->kind() != TypeKind::NumberType))
      fail("flops returns (" + to_string(types) + "), expected one int or float");
    made_->flops_code = std::make_shared<torch::jit::Code>(made_->flops->graph, "flops");
  }

  std::string who_;  // the function that the program called
  std::string op_;
  const OperatorRule& given_;
  std::shared_ptr<torch::jit::Operator> operator_;
  const c10::FunctionSchema* schema_ = nullptr;
  std::shared_ptr<UserRule> made_ = std::make_shared<UserRule>();
  Names extra_types_;
  Names has_gradient_;
};

}  // namespace

RuleFunction::RuleFunction(torch::jit::Function& function, std::vector<std::string> parameters)
    : graph_(torch::jit::toGraphFunction(function).graph()->copy()),
      parameters_(std::move(parameters)) {
  torch::jit::Inline(*graph_);
  const auto& arguments = function.getSchema().arguments();
  const bool is_method = !arguments.empty() && graph_->inputs()[0]->type()->is_module();
  if (is_method && graph_->inputs()[0]->hasUses()) {
    fail_to_register("",
                     "register_rule: the method \"" + function.name() +
                         "\" uses its module; a function of a rule can use its parameters only");
  }
  if (is_method)
    graph_->eraseInput(0);
  if (parameters_.empty()) {
    for (size_t i = is_method ? 1 : 0; i < arguments.size(); ++i)
      parameters_.push_back(arguments[i].name());
  }
}

void register_rule(const std::string& op, const OperatorRule& rule) {
  auto made = RuleMaker(op, rule).run();
  const auto name = made->rule.op;
  if (!add_user_rule(std::move(made), rule.replace)) {
    fail_to_register(op, "register_rule: " + name +
                             ": it has been given a rule already; replace = true puts this one "
                             "in its place");
  }
}

void register_shape(const std::string& op, const RuleFunction& shape, bool replace) {
  RuleMaker maker(op, {}, "register_shape");
  if (shape.empty())
    maker.fail("the function is empty");
  auto made = maker.make_shape(shape);
  if (!add_user_shape(maker.name(), std::move(made), replace))
    maker.fail("it has been given a shape already; replace = true puts this one in its place");
}

void register_flops(const std::string& op, const RuleFunction& flops, bool replace) {
  OperatorRule rule;
  rule.flops = flops;
  RuleMaker maker(op, rule, "register_flops");
  if (flops.empty())
    maker.fail("the function is empty");
  auto made = maker.make_flops_alone();
  const auto rules = registered_rules();
  const auto found = rules->find(maker.name());
  const bool has_rule = found != rules->end() && found->second->flops != nullptr;
  if ((has_rule && !replace) || !add_user_flops(maker.name(), std::move(made), replace))
    maker.fail("it has been given flops already; replace = true puts these in their place");
}

}  // namespace aten_recompute
