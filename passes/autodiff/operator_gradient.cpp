#include "passes/autodiff/operator_gradient.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <memory>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "passes/autodiff/not_differentiable.h"
#include "rules/recomputability.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Returns whether autograd differentiates what the node runs.
bool has_autograd(const Node* node) {
  static const auto logit_backward = c10::Symbol::fromQualString("aten::logit_backward");
  if (node->kind() == logit_backward)  // for two gradients, eager's logit runs other operators
    return false;
  return node->kind().is_aten() || node->kind().is_prim() ||
         node->kind() == symbols::kOperatorGradient || has_fact(node, Fact::kComposed);
}

bool has_gradient(Node* node) {
  const auto outputs = node->outputs();
  return has_autograd(node) || find_rule(node) != nullptr || is_non_differentiable(node) ||
         std::none_of(outputs.begin(), outputs.end(),
                      [](const Value* value) { return contains_tensor(*value->type()); });
}

bool all_have_gradients(Block* block) {
  bool all = true;
  for_each_node(block, [&](Node* node) { all = all && has_gradient(node); });
  return all;
}

}  // namespace

bool may_stay_beside(const Rule& rule, const Node* node) {
  return !rule.is_users && (rule.extras.empty() || !updates_hidden_state(node));
}

bool may_differentiate_again(const Rule& rule, Node* node) {
  if (!rule.extras.empty() && !all_have_gradients(compiled_forward(rule, node).graph->block()))
    return false;
  for (size_t i = 0; i < rule.gradients.size(); ++i) {
    const auto& formula = compiled_again(rule, i, node);
    if (formula.is_one_operator || !all_have_gradients(formula.graph->block()))
      return false;
  }
  return true;
}

void require_differentiable_outputs(Node* node, GradientSums& sums) {
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    if (output_is_differentiable(node, i))
      sums.require_tensor(node->output(i));
  }
}

bool may_differentiate_parts_again(const Rule& rule, Node* node) {
  const auto* formula = compiled_parts(rule, node);
  if (formula == nullptr)
    return false;
  bool all = true;
  for_each_node(formula->graph->block(), [&](Node* part) {
    const auto* of_part = has_autograd(part) ? nullptr : find_rule(part);
    all =
        all && (of_part == nullptr ? has_gradient(part) : may_differentiate_again(*of_part, part));
  });
  return all;
}

namespace {

// Returns whether the node is a norm that takes its statistics from the batch. It may run again if
// it does not update the caller's.
bool is_norm_in_training(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || node->kind() != c10::aten::batch_norm)
    return false;
  const auto training = schema->argumentIndexWithName("training");
  return training && torch::jit::constant_as<bool>(node->input(*training)).value_or(false);
}

// Makes a copy of such a norm leave the running statistics alone.
void leave_out_running_statistics(Node* norm) {
  const torch::jit::WithInsertPoint guard(norm);
  auto* none = norm->owningGraph()->insertConstant(c10::IValue());
  for (const char* name : {"running_mean", "running_var"})
    norm->replaceInput(static_cast<size_t>(*norm->schema().argumentIndexWithName(name)), none);
}

}  // namespace

bool has_operator_gradient(const Node* node) {
  const auto has_tensors_only = [](at::ArrayRef<const Value*> values) {
    return std::none_of(values.begin(), values.end(), [](const Value* value) {
      return contains_tensor(*value->type()) && !is_tensor_type(*value->type());
    });
  };
  if (!has_autograd(node) || !has_tensors_only(node->inputs()) ||
      !has_tensors_only(node->outputs()) || draws_random_numbers(node))
    return false;
  return is_norm_in_training(node) ||
         (recompute_veto(node) == RecomputeVeto::kNone && !updates_hidden_state(node));
}

void insert_operator_gradient(Node* node, GradientSums& sums) {
  std::vector<Value*> gradients;
  std::vector<int64_t> has_gradient;
  for (auto* output : node->outputs()) {
    auto* gradient = sums.gradient_of(output);
    has_gradient.push_back(gradient != nullptr ? 1 : 0);
    if (gradient != nullptr)
      gradients.push_back(gradient);
  }
  if (gradients.empty())
    return;
  if (!has_operator_gradient(node))
    throw NotDifferentiable("a gradient of " + qualified_operator_name(node) +
                            ", which takes lists or may not run twice, is asked for by the method");
  auto& graph = *node->owningGraph();
  auto subgraph = std::make_shared<Graph>();
  std::vector<int64_t> requires_grad, is_target;
  std::vector<Value*> targets;
  auto* copy = subgraph->insertNode(subgraph->createClone(node, [&](Value* operand) {
    requires_grad.push_back(sums.is_tracked(operand) ? 1 : 0);
    is_target.push_back(sums.requires_grad(operand) ? 1 : 0);
    if (is_target.back() != 0)
      targets.push_back(operand);
    return subgraph->addInput()->setType(operand->type());
  }));
  for (auto* output : copy->outputs())
    subgraph->registerOutput(output);
  if (is_norm_in_training(node))
    leave_out_running_statistics(copy);
  std::vector<Value*> operands = node->inputs().vec();
  operands.insert(operands.end(), gradients.begin(), gradients.end());
  auto* added =
      graph.insertNode(graph.create(symbols::kOperatorGradient, operands, targets.size()));
  added->g_(c10::attr::Subgraph, subgraph)->is_(symbols::kRequiresGrad, requires_grad);
  added->is_(symbols::kIsTarget, is_target)->is_(symbols::kHasGradient, has_gradient);
  const auto* rule = find_rule(node);
  for (auto* output : added->outputs())
    output->setType(c10::TensorType::get());
  sums.add_each(targets, added->outputs(), rule != nullptr && rule->gradients_in_reverse);
}

}  // namespace aten_recompute
