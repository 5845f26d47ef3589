#include "passes/autodiff/apply_rule.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "ir/functionalize.h"
#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/insert_formula.h"
#include "rules/recomputability.h"
#include "rules/registry.h"
#include "rules/user_rules.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

using Names = std::unordered_map<std::string, Value*>;
// Gradients by the index of their argument.
using GradientsByArgument = std::map<size_t, Value*>;

bool requires_grad(const std::string& name, const Names& names, const GradientSums& sums) {
  return sums.requires_grad(names.at(name));
}

// Returns which elements of the list require grad; an empty list if no node builds it from them.
c10::List<bool> elements_require_grad(Value* list, const GradientSums& sums) {
  c10::List<bool> required;
  if (list->node()->kind() == prim::ListConstruct) {
    for (auto* element : list->node()->inputs())
      required.push_back(sums.requires_grad(element));
  }
  return required;
}

// Inserts the operators that formulas write as layout_of(argument).
Value* insert_stand_in(Graph& graph, Value* value) {
  return graph.insert(symbols::kStandIn, {graph.insert(symbols::kLayout, {value})});
}

// Returns the list, or one with a stand-in for its only element that requires grad.
Value* insert_factors(Graph& graph, Value* list, const GradientSums& sums) {
  const auto required = elements_require_grad(list, sums);
  if (std::count(required.begin(), required.end(), true) != 1)
    return list;
  auto elements = list->node()->inputs().vec();
  const auto only = std::find(required.begin(), required.end(), true) - required.begin();
  auto& element = elements[static_cast<size_t>(only)];
  element = insert_stand_in(graph, element);
  return graph.insertNode(graph.createList(c10::TensorType::get(), elements))->output();
}

// Returns the value for a parameter of a formula that is no gradient: a value of the rule or what
// its prefix says, see rules/rule.h.
Value* bind_value(Graph& graph, const std::string& parameter, const Names& names,
                  const GradientSums& sums) {
  if (const auto found = names.find(parameter); found != names.end())
    return found->second;
  if (parameter == "is_real")
    return graph.insertConstant(sums.is_real());
  const std::string each = "needs_each_";
  if (parameter.rfind(each, 0) == 0) {
    return graph.insertConstant(
        elements_require_grad(names.at(parameter.substr(each.size())), sums));
  }
  const std::string factors = "factors_of_";
  if (parameter.rfind(factors, 0) == 0)
    return insert_factors(graph, names.at(parameter.substr(factors.size())), sums);
  const std::string tracked = "requires_";
  if (parameter.rfind(tracked, 0) == 0)
    return graph.insertConstant(sums.is_tracked(names.at(parameter.substr(tracked.size()))));
  const auto argument = parameter.substr(std::string("needs_").size());
  return graph.insertConstant(requires_grad(argument, names, sums));
}

// ---- forward ----

// The values inside a rule's forward have no gradients of their own in `sums`, but a plan has to
// know that a gradient passes through them.
void note_gradient_path(Node* node, const GradientSums& sums,
                        std::unordered_set<size_t>& gradient_path) {
  if (is_non_differentiable(node))
    return;
  const auto inputs = node->inputs();
  if (std::none_of(inputs.begin(), inputs.end(), [&](Value* input) {
        return sums.requires_grad(input) || gradient_path.count(input->unique()) != 0;
      })) {
    return;
  }
  for (auto* output : node->outputs()) {
    if (contains_tensor(*output->type()))
      gradient_path.insert(output->unique());
  }
}

// Copies the source line and the attributes that say where `original` comes from.
void copy_origin(Node* original, Node* added) {
  added->copyMetadata(original);
  if (added->kind() == prim::Constant)
    return;
  copy_place(original, added);
  if (original->hasAttribute(symbols::kNumber))
    added->i_(symbols::kOfNumber, original->i(symbols::kNumber));
  if (original->hasAttribute(symbols::kReadsWritten))
    added->i_(symbols::kReadsWritten, original->i(symbols::kReadsWritten));
}

// Makes `values`, the results of the rule's forward, take the place of the outputs of `node`.
void replace_outputs(Node* node, const std::vector<Value*>& values) {
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    if (node->output(i)->hasDebugName() && !values[i]->hasDebugName())
      values[i]->setDebugName(node->output(i)->debugNameBase());
    node->output(i)->replaceAllUsesWith(values[i]);
  }
}

// Inserts a forward before `node`, and returns its results.
std::vector<Value*> insert_results(Node* node, const CompiledFormula& formula,
                                   const GradientSums& sums, const Names& names) {
  auto& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  auto* before = node->prev();
  std::vector<Value*> arguments;
  for (const auto& parameter : formula.parameters)
    arguments.push_back(bind_value(graph, parameter, names, sums));
  auto values = insert_formula(graph, formula, arguments);
  for (auto* added = before->next(); added != node; added = added->next())
    copy_origin(node, added);
  return values;
}

// Adds the extras, which follow the first `num_outputs` of the values, to `names`.
void bind_extras(const Rule& rule, const std::vector<Value*>& values, size_t num_outputs,
                 Names& names) {
  for (size_t i = 0; i < rule.extras.size(); ++i)
    names[rule.extras[i].substr(0, rule.extras[i].find(':'))] = values[num_outputs + i];
}

// Inserts the rule's forward before `node` and makes its results take the place of the outputs of
// `node`. Adds the extras to `names`. Returns the outputs, then the extras.
std::vector<Value*> insert_forward(Node* node, const Rule& rule, const GradientSums& sums,
                                   std::unordered_set<size_t>& gradient_path, Names& names) {
  auto* before = node->prev();
  auto values = insert_results(node, compiled_forward(rule, node), sums, names);
  for (auto* added = before->next(); added != node; added = added->next())
    note_gradient_path(added, sums, gradient_path);
  const size_t count = node->outputs().size();
  if (values.size() != count + rule.extras.size()) {
    throw std::logic_error("gradient rule for " + rule.op + ": forward returns " +
                           std::to_string(values.size()) + " values, expected " +
                           std::to_string(count + rule.extras.size()));
  }
  replace_outputs(node, values);
  bind_extras(rule, values, count, names);
  return values;
}

// Replaces the results of `a, b = [x, y]` by x and y: a list that one node builds and another takes
// apart has no gradient.
void forward_elements(Node* first, Node* end) {
  for (auto* node = first; node != end;) {
    auto* unpack = node;
    node = node->next();
    if (unpack->kind() != prim::ListUnpack ||
        unpack->input()->node()->kind() != prim::ListConstruct)
      continue;
    const auto elements = unpack->input()->node()->inputs();
    if (elements.size() != unpack->outputs().size())
      continue;
    for (size_t i = 0; i < elements.size(); ++i)
      unpack->output(i)->replaceAllUsesWith(elements[i]);
    unpack->destroy();
  }
}

// Removes the conversions of `value`, which has the type already: eager PyTorch has no node for
// them.
void remove_conversions(Value* value, Node* first, Node* end) {
  for (auto* node = first; node != end;) {
    auto* conversion = node;
    node = node->next();
    if (conversion->kind() != c10::aten::to || conversion->input(0) != value)
      continue;
    conversion->output()->replaceAllUsesWith(value);
    conversion->destroy();
  }
}

// Marks the outputs that require grad. A further output whose gradient no formula reads has none:
// the indices of a maximum.
void require_outputs(const AppliedRule& applied, GradientSums& sums) {
  for (size_t i = 0; i < applied.outputs.size(); ++i) {
    const auto gradient = "grad" + std::to_string(i);
    const auto reads_gradient = [&](const CompiledFormula* formula) {
      const auto& parameters = formula->parameters;
      return std::find(parameters.begin(), parameters.end(), gradient) != parameters.end();
    };
    if (i == 0 || std::any_of(applied.formulas.begin(), applied.formulas.end(), reads_gradient))
      sums.require_tensor(applied.outputs[i]);
  }
}

AppliedRule bind_arguments(Node* node, const Rule& rule) {
  AppliedRule applied;
  applied.rule = &rule;
  const auto& arguments = node->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    applied.names[arguments[i].name()] = node->input(i);
    applied.arguments.emplace_back(arguments[i].name(), node->input(i));
  }
  return applied;
}

// Returns what eager's formula reads as the result: what an in-place operator has written.
Value* written_result(const Node* node, Value* output) {
  if (!node->hasAttribute(kKeepsType))
    return output;
  for (const auto& use : output->uses()) {
    if (use.user->kind() == c10::aten::to && use.user->hasAttribute(kKeepsType))
      return use.user->output();
  }
  return output;
}

// Returns whether a gradient that the method asks for reads an operand of the node, which is kept
// then.
bool is_operand_kept(const Node* node) {
  const auto inputs = node->inputs();
  return std::any_of(inputs.begin(), inputs.end(), [](const Value* input) {
    const auto& uses = input->uses();
    return std::any_of(uses.begin(), uses.end(), [](const auto& use) {
      return use.user->hasAttribute(symbols::kBackwardOf);
    });
  });
}

// Binds what is known once `applied.outputs` starts with the outputs of the node.
void bind_outputs(const Node* node, AppliedRule& applied, GradientSums& sums) {
  applied.outputs.resize(node->schema().returns().size());
  for (size_t i = 0; i < applied.outputs.size(); ++i)
    applied.names[i == 0 ? "result" : "result" + std::to_string(i)] =
        written_result(node, applied.outputs[i]);
  for (size_t i = 0; i < applied.rule->gradients.size(); ++i) {
    const bool reads_operand = applied.rule->gradients[i].is_by_result && is_operand_kept(node);
    applied.formulas.push_back(applied.use == FormulaUse::kAgain || reads_operand
                                   ? &compiled_again(*applied.rule, i, node)
                                   : &compiled_gradient(*applied.rule, i, node));
  }
  require_outputs(applied, sums);
}

// ---- backward ----

// Returns the value for parameter grad, grads, grad1, ... and nullptr for any other parameter. An
// undefined gradient is None where the parameter accepts that, and zeros where it does not.
Value* bind_gradient(Graph& graph, const std::string& parameter, const c10::Type& type,
                     const AppliedRule& applied, const GradientSums& sums) {
  if (parameter.rfind("grad", 0) != 0 || applied.names.count(parameter) != 0)
    return nullptr;
  if (parameter == "grads")
    return sums.gradient_of(applied.outputs[0]);
  const auto index = parameter == "grad" ? size_t{0} : std::stoul(parameter.substr(4));
  auto* output = applied.outputs.at(index);
  if (auto* gradient = sums.gradient_of(output))
    return gradient;
  if (type.kind() == c10::TypeKind::OptionalType)
    return graph.insertConstant(c10::IValue());
  return graph.insert(c10::aten::zeros_like, {output});
}

// Adds the gradient of an argument to `sums`. An operator that reads one value twice (x @ x) gives
// it two gradients, which eager's engine adds in the order of the arguments, or in reverse
// (Rule::gradients_in_reverse), whatever the order of the formulas: these are put into `postponed`
// instead.
void add_or_postpone(const AppliedRule& applied, const std::string& argument, Value* gradient,
                     GradientSums& sums, GradientsByArgument& postponed) {
  const auto& arguments = applied.arguments;
  const auto found = std::find_if(arguments.begin(), arguments.end(),
                                  [&](const auto& each) { return each.first == argument; });
  auto* value = found->second;
  const auto readers = std::count_if(arguments.begin(), arguments.end(),
                                     [&](const auto& each) { return each.second == value; });
  if (readers > 1)
    postponed.emplace(found - arguments.begin(), gradient);
  else
    sums.add(value, gradient);
}

// Inserts formula `index` of the rule and adds the gradients that it returns.
void insert_gradient_formula(Graph& graph, const AppliedRule& applied, size_t index,
                             const std::vector<std::string>& targets, GradientSums& sums,
                             GradientsByArgument& postponed) {
  const auto& rule = *applied.rule;
  const auto& formula = *applied.formulas[index];
  std::vector<Value*> arguments;
  for (size_t k = 0; k < formula.parameters.size(); ++k) {
    const auto& parameter = formula.parameters[k];
    auto* gradient =
        bind_gradient(graph, parameter, *formula.graph->inputs()[k]->type(), applied, sums);
    arguments.push_back(gradient != nullptr ? gradient
                                            : bind_value(graph, parameter, applied.names, sums));
  }
  auto values = insert_formula(graph, formula, arguments);
  if (values.size() != targets.size()) {
    throw std::logic_error("gradient rule for " + rule.op + ": the formula for " +
                           rule.gradients[index].inputs + " returns " +
                           std::to_string(values.size()) + " values");
  }
  for (size_t k = 0; k < targets.size(); ++k) {
    if (!requires_grad(targets[k], applied.names, sums))
      continue;
    auto* gradient = values[k];
    if (rule.is_users)
      gradient = insert_gradient_check(gradient, applied.names.at(targets[k]), rule.op, targets[k]);
    if (gradient != nullptr)
      add_or_postpone(applied, targets[k], gradient, sums, postponed);
  }
}

}  // namespace

std::vector<Node*> replace_by_parts(Node* node, const Rule& rule, GradientSums& sums) {
  const auto* formula = compiled_parts(rule, node);
  if (formula == nullptr)
    return {};
  Names names;
  for (size_t i = 0; i < node->inputs().size(); ++i)
    names[node->schema().arguments()[i].name()] = node->input(i);
  auto* before = node->prev();
  const auto values = insert_results(node, *formula, sums, names);
  forward_elements(before->next(), node);
  if (node->hasAttribute(symbols::kHasComputedType) && !rule.is_users)
    remove_conversions(node->input(0), before->next(), node);
  std::vector<Node*> parts;
  for (auto* part = before->next(); part != node; part = part->next())
    parts.push_back(part);
  if (std::any_of(parts.begin(), parts.end(), [](Node* part) { return !part->blocks().empty(); })) {
    std::for_each(parts.rbegin(), parts.rend(), [](Node* part) { part->destroy(); });
    return {};
  }
  replace_outputs(node, values);
  node->destroy();
  if (!parts.empty() && parts.back()->kind() == prim::TupleConstruct) {
    parts.back()->destroy();  // it held the results
    parts.pop_back();
  }
  for (const auto* part : parts)
    sums.track_outputs(part);
  return parts;
}

void replace_by_forward(Node* node, const Rule& rule, const GradientSums& sums) {
  auto applied = bind_arguments(node, rule);
  std::unordered_set<size_t> gradient_path;
  insert_forward(node, rule, sums, gradient_path, applied.names);
  node->destroy();
}

AppliedRule apply_rule_forward(Node* node, const Rule& rule, GradientSums& sums,
                               std::unordered_set<size_t>& gradient_path) {
  auto applied = bind_arguments(node, rule);
  applied.outputs = rule.has_forward()
                        ? insert_forward(node, rule, sums, gradient_path, applied.names)
                        : node->outputs().vec();
  bind_outputs(node, applied, sums);
  if (rule.has_forward())
    node->destroy();
  return applied;
}

AppliedRule apply_rule_beside(Node* node, const Rule& rule, GradientSums& sums, bool create_graph) {
  if (rule.has_forward() && draws_random_numbers(node)) {
    std::unordered_set<size_t> gradient_path;
    return apply_rule_forward(node, rule, sums, gradient_path);
  }
  auto applied = bind_arguments(node, rule);
  applied.outputs = node->outputs().vec();
  if (create_graph)
    applied.use = FormulaUse::kAgain;
  if (!rule.extras.empty()) {
    const auto values = insert_results(node, compiled_forward(rule, node), sums, applied.names);
    bind_extras(rule, values, applied.outputs.size(), applied.names);
  }
  bind_outputs(node, applied, sums);
  return applied;
}

void insert_rule_backward(const AppliedRule& applied, GradientSums& sums) {
  const auto& outputs = applied.outputs;
  if (std::none_of(outputs.begin(), outputs.end(),
                   [&](Value* output) { return sums.gradient_of(output) != nullptr; })) {
    return;
  }
  auto& graph = *outputs[0]->owningGraph();
  GradientsByArgument postponed;
  for (size_t i = 0; i < applied.formulas.size(); ++i) {
    const auto targets = split_names(applied.rule->gradients[i].inputs);
    if (std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
          return requires_grad(target, applied.names, sums);
        })) {
      insert_gradient_formula(graph, applied, i, targets, sums, postponed);
    }
  }
  const auto add = [&](const auto& each) {
    sums.add(applied.arguments[each.first].second, each.second);
  };
  if (applied.rule->gradients_in_reverse)
    std::for_each(postponed.rbegin(), postponed.rend(), add);
  else
    std::for_each(postponed.begin(), postponed.end(), add);
}

}  // namespace aten_recompute
