#include "passes/autodiff/differentiate.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/gradient_sums.h"
#include "passes/autodiff/hoist_metadata.h"
#include "passes/autodiff/put_on_tape.h"
#include "passes/autodiff/specialise_formula.h"
#include "passes/manager/pass_manager.h"
#include "rules/rule.h"
#include "rules/user_rules.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

bool passes_gradient_unchanged(const Node* node) {
  return is_cast(node) || is_marker(node);
}

// A list of tensors made here is broadcast, and only unpacked.
bool is_broadcast(const Node* node) {
  if (node->kind() != c10::aten::broadcast_tensors ||
      node->input()->node()->kind() != prim::ListConstruct) {
    return false;
  }
  const auto& uses = node->output()->uses();
  return std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    return use.user->kind() == prim::ListUnpack;
  });
}

class Differentiator {
 public:
  explicit Differentiator(std::shared_ptr<Graph> graph)
      : graph_(std::move(graph)), sums_(*graph_) {}

  JointGraph run(const std::vector<bool>& requires_grad, const std::vector<bool>& vjp_defined) {
    joint_.graph = graph_;
    joint_.num_inputs = graph_->inputs().size();
    joint_.num_outputs = graph_->outputs().size();
    for (size_t i = 0; i < joint_.num_inputs; ++i) {
      if (requires_grad[i])
        sums_.require(graph_->inputs()[i]);
    }
    prepare_forward();
    start_backward(vjp_defined);
    for (size_t i = backward_steps_.size(); i-- > 0;) {
      auto* before = graph_->return_node()->prev();
      backward_steps_[i]();
      for (auto* added = before->next(); added != graph_->return_node(); added = added->next())
        origins_[i].mark(added);
    }
    register_gradients(requires_grad);
    joint_.requires_grad = gradient_path_;
    for (const auto* value : sums_.required())
      joint_.requires_grad.insert(value->unique());
    return joint_;
  }

 private:
  using BackwardStep = std::function<void()>;

  // Where the nodes of a backward step come from: for errors and profilers.
  struct Origin {
    std::string op;
    std::string module_path;
    torch::jit::SourceRange source;

    explicit Origin(const Node* node)
        : op(qualified_operator_name(node)), source(node->sourceRange()) {
      if (node->hasAttribute(symbols::kModulePath))
        module_path = node->s(symbols::kModulePath);
    }
    void mark(Node* added) const {
      if (added->kind() == prim::Constant)
        return;
      added->setSourceRange(source);
      added->s_(symbols::kBackwardOf, op);
      if (!module_path.empty())
        added->s_(symbols::kModulePath, module_path);
    }
  };
  using Arguments = std::vector<std::pair<std::string, Value*>>;  // as the schema names them

  // ---- forward: replace operators by what their rules compute, remember how to go back ----

  void prepare_forward() {
    std::vector<Node*> nodes(graph_->nodes().begin(), graph_->nodes().end());
    for (auto* node : nodes) {
      bool any = false;
      for (auto* input : node->inputs())
        any = any || sums_.requires_grad(input);
      if (!any || !node->blocks().empty() || mutates_an_argument(node) ||
          is_non_differentiable(node)) {
        continue;
      }
      bool tensor_output = false;
      for (auto* output : node->outputs()) {
        tensor_output = tensor_output || contains_tensor(*output->type());
      }
      if (!tensor_output)
        continue;
      const Origin origin(node);
      if (node->kind() == prim::ListConstruct) {
        prepare_list_construct(node);
      } else if (is_broadcast(node)) {
        mark(node->output());
      } else if (node->kind() == prim::ListUnpack && is_broadcast(node->input()->node())) {
        prepare_broadcast(node);
      } else if (node->kind() == prim::ListUnpack) {
        prepare_list_unpack(node);
      } else if (node->kind() == c10::aten::__getitem__ && is_list_of_tensors(node->input(0))) {
        prepare_list_item(node);
      } else if (is_cast(node) && is_tensor_type(*node->output()->type())) {
        mark(node->output());
        sums_.make_one(node->output(), node->input(0));
      } else if (passes_gradient_unchanged(node)) {
        mark(node->output());
        backward_steps_.emplace_back([this, in = node->input(0), out = node->output()] {
          if (auto* gradient = sums_.of(out))
            sums_.add(in, gradient);
        });
      } else if (const auto* rule = find_rule(node)) {
        prepare_rule(node, *rule);
      } else {
        prepare_tape(node);
      }
      while (origins_.size() < backward_steps_.size())
        origins_.push_back(origin);
    }
  }

  void mark(Value* value) {
    if (contains_tensor(*value->type()))
      sums_.require(value);
  }

  void prepare_list_construct(Node* node) {
    mark(node->output());
    backward_steps_.emplace_back([this, node] {
      auto* gradient = sums_.of(node->output());
      if (gradient == nullptr)
        return;
      if (!gradient->type()->expect<c10::ListType>()->getElementType()->isSubtypeOf(
              *c10::TensorType::get())) {
        throw NotDifferentiable("a list of tensors is built in one place and indexed in another");
      }
      auto* unpack = graph_->insertNode(graph_->createListUnpack(gradient, node->inputs().size()));
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        sums_.add(node->input(i), unpack->output(i));
      }
    });
  }

  void prepare_list_unpack(Node* node) {
    for (auto* output : node->outputs())
      mark(output);
    backward_steps_.emplace_back([this, node] {
      if (auto* list = sums_.list_of(node->outputs()))
        sums_.add(node->input(), list);
    });
  }

  // The results of a broadcast, each an operand expanded: not one list, of which all requires grad
  // if the predictions of a loss do, and its targets with them.
  void prepare_broadcast(Node* unpack) {
    joint_.operators.by_rule.emplace_back("aten::broadcast_tensors");
    const auto operands = unpack->input()->node()->input()->node()->inputs();
    for (size_t i = 0; i < operands.size(); ++i) {
      auto* result = unpack->output(i);
      auto* operand = operands[i];
      if (!sums_.requires_grad(operand))
        continue;
      mark(result);
      backward_steps_.emplace_back([this, result, operand] {
        auto* gradient = sums_.of(result);
        if (gradient == nullptr)
          return;
        auto* sizes = graph_->insert(c10::aten::size, {operand});
        auto* dtype = graph_->insert(prim::dtype, {operand});
        sums_.add(operand, graph_->insert(symbols::kReduceGrad, {gradient, sizes, dtype}));
      });
    }
  }

  void prepare_list_item(Node* node) {
    mark(node->output());
    backward_steps_.emplace_back([this, node] {
      auto* gradient = sums_.of(node->output());
      if (gradient == nullptr)
        return;
      auto* length = graph_->insert(c10::aten::len, {node->input(0)});
      auto* list = graph_->insertNode(
          graph_->create(symbols::kListGradient, {gradient, node->input(1), length}, 1));
      list->output()->setType(c10::ListType::create(c10::OptionalType::ofTensor()));
      sums_.add(node->input(0), list->output());
    });
  }

  void prepare_rule(Node* node, const Rule& rule) {
    auto& operators = joint_.operators;
    (rule.is_users ? operators.by_user_rule : operators.by_rule)
        .push_back(qualified_operator_name(node));
    std::unordered_map<std::string, Value*> names;
    Arguments node_arguments;
    const auto& schema = node->schema();
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      names[schema.arguments()[i].name()] = node->input(i);
      node_arguments.emplace_back(schema.arguments()[i].name(), node->input(i));
    }
    std::vector<Value*> outputs(node->outputs().begin(), node->outputs().end());
    if (rule.has_forward())
      outputs = replace_by_forward(node, rule, names);
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      names[i == 0 ? "result" : "result" + std::to_string(i)] = outputs[i];
    }
    outputs.resize(schema.returns().size());
    std::vector<const CompiledFormula*> formulas;
    for (size_t i = 0; i < rule.gradients.size(); ++i) {
      formulas.push_back(&compiled_gradient(rule, i, node));
    }
    // Outputs whose gradient no formula reads have none: the indices of a maximum.
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto gradient = "grad" + std::to_string(i);
      if (i == 0 || std::any_of(formulas.begin(), formulas.end(), [&](const auto* formula) {
            const auto& used = formula->parameters;
            return std::find(used.begin(), used.end(), gradient) != used.end();
          })) {
        mark(outputs[i]);
      }
    }
    if (rule.has_forward())
      node->destroy();
    backward_steps_.emplace_back([this, &rule, formulas, names, node_arguments, outputs] {
      apply_formulas(rule, formulas, names, node_arguments, outputs);
    });
  }

  // Inlines the rule's forward in place of `node`; returns outputs and binds extras.
  std::vector<Value*> replace_by_forward(Node* node, const Rule& rule,
                                         std::unordered_map<std::string, Value*>& names) {
    const auto& formula = compiled_forward(rule, node);
    std::vector<Value*> arguments;
    const torch::jit::WithInsertPoint guard(node);
    auto* before = node->prev();
    for (const auto& name : formula.parameters)
      arguments.push_back(bind(name, names));
    auto values = unpacked(
        torch::jit::insertGraph(*graph_, *specialise_formula(formula, arguments), arguments));
    for (auto* added = before->next(); added != node; added = added->next()) {
      note_gradient_path(added);
      added->copyMetadata(node);
      for (auto attribute : {symbols::kLayer, symbols::kModulePath, symbols::kReadsWritten}) {
        if (!node->hasAttribute(attribute) || added->kind() == prim::Constant)
          continue;
        if (attribute == symbols::kModulePath) {
          added->s_(attribute, node->s(attribute));
        } else {
          added->i_(attribute, node->i(attribute));
        }
      }
    }
    const size_t count = node->outputs().size();
    if (values.size() != count + rule.extras.size()) {
      throw std::logic_error("gradient rule for " + rule.op + ": forward returns " +
                             std::to_string(values.size()) + " values, expected " +
                             std::to_string(count + rule.extras.size()));
    }
    for (size_t i = 0; i < count; ++i) {
      if (node->output(i)->hasDebugName() && !values[i]->hasDebugName()) {
        values[i]->setDebugName(node->output(i)->debugNameBase());
      }
      node->output(i)->replaceAllUsesWith(values[i]);
    }
    for (size_t i = 0; i < rule.extras.size(); ++i) {
      names[rule.extras[i].substr(0, rule.extras[i].find(':'))] = values[count + i];
    }
    return values;
  }

  // What a rule's forward computes on the way is no value that formulas ask gradients of, but plans
  // want to know that a gradient passes by.
  void note_gradient_path(Node* node) {
    if (is_non_differentiable(node))
      return;
    for (auto* input : node->inputs()) {
      if (!sums_.requires_grad(input) && gradient_path_.count(input->unique()) == 0)
        continue;
      for (auto* output : node->outputs()) {
        if (contains_tensor(*output->type()))
          gradient_path_.insert(output->unique());
      }
    }
  }

  void prepare_tape(Node* node) {
    joint_.operators.on_tape.push_back(qualified_operator_name(node));
    auto* tape = put_on_tape(node, sums_);
    backward_steps_.emplace_back([this, tape] { insert_tape_backward(tape, sums_); });
  }

  // ---- backward ----

  void start_backward(const std::vector<bool>& vjp_defined) {
    joint_.backward_start =
        graph_->appendNode(graph_->create(symbols::kBackwardStart, /*num_outputs=*/0));
    for (size_t i = 0; i < joint_.num_outputs; ++i) {
      auto* output = graph_->outputs()[i];
      const bool differentiable = sums_.requires_grad(output) && is_tensor_type(*output->type());
      if (!differentiable && sums_.requires_grad(output))
        throw NotDifferentiable("a list of tensors leaves it");
      joint_.output_requires_grad.push_back(differentiable);
      if (!differentiable || !vjp_defined[i])
        continue;
      joint_.vjp_outputs.push_back(i);
      auto* vjp = graph_->addInput()->setType(c10::TensorType::get());
      vjp->setDebugName("grad_" + std::to_string(i));
      sums_.add(output, vjp);
    }
  }

  void apply_formulas(const Rule& rule, const std::vector<const CompiledFormula*>& formulas,
                      const std::unordered_map<std::string, Value*>& names,
                      const Arguments& node_arguments, const std::vector<Value*>& outputs) {
    bool defined = false;
    std::map<size_t, Value*> waiting;  // by argument
    for (auto* output : outputs)
      defined = defined || sums_.of(output) != nullptr;
    if (!defined)
      return;
    for (size_t i = 0; i < formulas.size(); ++i) {
      const auto targets = split_names(rule.gradients[i].inputs);
      bool needed = false;
      for (const auto& target : targets) {
        needed = needed || sums_.requires_grad(names.at(target));
      }
      if (!needed)
        continue;
      std::vector<Value*> arguments;
      for (size_t k = 0; k < formulas[i]->parameters.size(); ++k) {
        const auto& parameter = formulas[i]->parameters[k];
        auto* gradient =
            bind_gradient(parameter, *formulas[i]->graph->inputs()[k]->type(), names, outputs);
        arguments.push_back(gradient != nullptr ? gradient : bind(parameter, names));
      }
      auto values = unpacked(torch::jit::insertGraph(
          *graph_, *specialise_formula(*formulas[i], arguments), arguments));
      if (values.size() != targets.size()) {
        throw std::logic_error("gradient rule for " + rule.op + ": the formula for " +
                               rule.gradients[i].inputs + " returns " +
                               std::to_string(values.size()) + " values");
      }
      for (size_t k = 0; k < targets.size(); ++k) {
        if (!sums_.requires_grad(names.at(targets[k])))
          continue;
        auto* gradient = values[k];
        if (rule.is_users)
          gradient = insert_gradient_check(gradient, names.at(targets[k]), rule.op, targets[k]);
        if (gradient != nullptr)
          add_or_wait(node_arguments, targets[k], gradient, waiting);
      }
    }
    for (const auto& [index, gradient] : waiting)
      sums_.add(node_arguments[index].second, gradient);
  }

  // An operator that reads one value twice (x @ x) gives it two gradients. Eager's engine adds them
  // in the order of the arguments, whatever the order in which formulas stand: those wait.
  void add_or_wait(const Arguments& arguments, const std::string& target, Value* gradient,
                   std::map<size_t, Value*>& waiting) {
    const auto found = std::find_if(arguments.begin(), arguments.end(),
                                    [&](const auto& each) { return each.first == target; });
    auto* value = found->second;
    const auto readers = std::count_if(arguments.begin(), arguments.end(),
                                       [&](const auto& each) { return each.second == value; });
    if (readers > 1) {
      waiting.emplace(found - arguments.begin(), gradient);
    } else {
      sums_.add(value, gradient);
    }
  }

  Value* bind(const std::string& parameter, const std::unordered_map<std::string, Value*>& names) {
    if (const auto found = names.find(parameter); found != names.end())
      return found->second;
    return graph_->insertConstant(sums_.requires_grad(names.at(parameter.substr(6))));
  }

  // grad, grads, grad1, ...; nullptr for any other parameter. A gradient that is undefined is None
  // where the parameter takes that, and zero where it does not.
  Value* bind_gradient(const std::string& parameter, const c10::Type& type,
                       const std::unordered_map<std::string, Value*>& names,
                       const std::vector<Value*>& outputs) {
    if (parameter.rfind("grad", 0) != 0 || names.count(parameter) != 0)
      return nullptr;
    if (parameter == "grads")
      return sums_.of(outputs[0]);
    const auto index = parameter == "grad" ? size_t{0} : std::stoul(parameter.substr(4));
    if (auto* gradient = sums_.of(outputs.at(index)))
      return gradient;
    if (type.kind() == c10::TypeKind::OptionalType)
      return graph_->insertConstant(c10::IValue());
    return graph_->insert(c10::aten::zeros_like, {outputs[index]});
  }

  // The values that a formula returns: one, or the elements of a tuple.
  std::vector<Value*> unpacked(const std::vector<Value*>& outputs) {
    if (outputs.size() != 1 || outputs[0]->type()->kind() != c10::TypeKind::TupleType) {
      return outputs;
    }
    if (outputs[0]->node()->kind() == prim::TupleConstruct) {
      // The elements themselves: what is noted of a value has to hold after the tuple is gone.
      const auto elements = outputs[0]->node()->inputs();
      return {elements.begin(), elements.end()};
    }
    auto* unpack = graph_->insertNode(graph_->createTupleUnpack(outputs[0]));
    return {unpack->outputs().begin(), unpack->outputs().end()};
  }

  void register_gradients(const std::vector<bool>& requires_grad) {
    for (size_t i = 0; i < joint_.num_inputs; ++i) {
      if (!requires_grad[i])
        continue;
      auto* gradient = sums_.of(graph_->inputs()[i]);
      if (gradient == nullptr)
        continue;
      joint_.gradient_inputs.push_back(i);
      graph_->registerOutput(gradient);
    }
  }

  std::shared_ptr<Graph> graph_;
  GradientSums sums_;
  JointGraph joint_;
  std::unordered_set<size_t> gradient_path_;
  std::vector<BackwardStep> backward_steps_;
  std::vector<Origin> origins_;  // of each
};

}  // namespace

JointGraph differentiate(const std::shared_ptr<Graph>& forward,
                         const std::vector<bool>& requires_grad,
                         const std::vector<bool>& vjp_defined) {
  auto joint = Differentiator(forward->copy()).run(requires_grad, vjp_defined);
  torch::jit::ConstantPropagation(joint.graph);  // decides the formulas' `if needs_...`
  torch::jit::LowerSimpleTuples(joint.graph->block());
  run_pass(Pass::kHoistMetadata, joint.graph, [&] { hoist_metadata(joint); });
  torch::jit::EliminateDeadCode(joint.graph->block());
  GRAPH_DUMP("joint graph", joint.graph);
  return joint;
}

}  // namespace aten_recompute
