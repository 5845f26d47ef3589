#include "passes/autodiff/operator_gradient.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_set>

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

// Returns whether the argument of this name is a constant that is true.
bool is_set(const Node* node, const char* name) {
  const auto index = node->schema().argumentIndexWithName(name);
  return index &&
         torch::jit::constant_as<bool>(node->input(static_cast<size_t>(*index))).value_or(false);
}

// Returns whether the node is a norm that takes its statistics from the batch. It may run again if
// it does not update the caller's.
bool is_norm_in_training(const Node* node) {
  if (node->kind() == c10::aten::batch_norm)
    return is_set(node, "training");
  return node->kind() == c10::aten::instance_norm && is_set(node, "use_input_stats");
}

// Gives a copy of the node, in another graph, those arguments that are constants as constants: they
// say whether it draws random numbers.
void keep_constants(const Node* node, Node* copy) {
  const torch::jit::WithInsertPoint guard(copy);
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    const auto value = torch::jit::toIValue(node->input(i));
    if (value && !value->isTensor())
      copy->replaceInput(i, copy->owningGraph()->insertConstant(*value));
  }
}

// Makes a copy of such a norm leave the running statistics alone.
void leave_out_running_statistics(Node* norm) {
  const torch::jit::WithInsertPoint guard(norm);
  auto* none = norm->owningGraph()->insertConstant(c10::IValue());
  for (const char* name : {"running_mean", "running_var"})
    norm->replaceInput(static_cast<size_t>(*norm->schema().argumentIndexWithName(name)), none);
}

// Returns whether the node's gradients read none of its operands, because the operator is linear in
// them, or linear between some bounds. Operators that have a rule are not listed: their formulas
// show what they read.
bool is_linear(const Node* node) {
  static const auto* operators = new std::unordered_set<std::string>{"affine_grid_generator",
                                                                     "alias_copy",
                                                                     "aminmax",
                                                                     "as_strided_copy",
                                                                     "atleast_1d",
                                                                     "atleast_2d",
                                                                     "atleast_3d",
                                                                     "clamp",
                                                                     "complex",
                                                                     "conj_physical",
                                                                     "cummax",
                                                                     "cummin",
                                                                     "cumulative_trapezoid",
                                                                     "diff",
                                                                     "expand_copy",
                                                                     "fft_fft",
                                                                     "fft_fft2",
                                                                     "fft_fftn",
                                                                     "fft_fftshift",
                                                                     "fft_hfft",
                                                                     "fft_hfft2",
                                                                     "fft_hfftn",
                                                                     "fft_ifft",
                                                                     "fft_ifft2",
                                                                     "fft_ifftn",
                                                                     "fft_ifftshift",
                                                                     "fft_ihfft",
                                                                     "fft_ihfft2",
                                                                     "fft_ihfftn",
                                                                     "fft_irfft",
                                                                     "fft_irfft2",
                                                                     "fft_irfftn",
                                                                     "fft_rfft",
                                                                     "fft_rfft2",
                                                                     "fft_rfftn",
                                                                     "hinge_embedding_loss",
                                                                     "imag",
                                                                     "kthvalue",
                                                                     "masked_scatter",
                                                                     "max_unpool2d",
                                                                     "max_unpool3d",
                                                                     "msort",
                                                                     "nanmean",
                                                                     "nanmedian",
                                                                     "put",
                                                                     "real",
                                                                     "resolve_conj",
                                                                     "resolve_neg",
                                                                     "sum_to_size",
                                                                     "take",
                                                                     "to_dense",
                                                                     "to_sparse",
                                                                     "trace",
                                                                     "unfold_copy",
                                                                     "view_as_complex",
                                                                     "view_as_real"};
  return node->kind().is_aten() && operators->count(node->kind().toUnqualString()) != 0;
}

// Returns whether the operator is linear in each operand where the others are constant: the
// gradient of one reads the others.
bool is_linear_in_each(const Node* node) {
  static const auto* operators = new std::unordered_set<std::string>{
      "combinations",        "cross",       "inner",    "kron",      "linalg_cross",
      "margin_ranking_loss", "nanquantile", "quantile", "trapezoid", "trapz"};
  return node->kind().is_aten() && operators->count(node->kind().toUnqualString()) != 0;
}

}  // namespace

bool has_operator_gradient(const Node* node) {
  const auto has_tensors_only = [](at::ArrayRef<const Value*> values) {
    return std::none_of(values.begin(), values.end(), [](const Value* value) {
      return contains_tensor(*value->type()) && !is_tensor_type(*value->type());
    });
  };
  if (!has_autograd(node) || !has_tensors_only(node->inputs()) ||
      !has_tensors_only(node->outputs()) || (draws_random_numbers(node) && !has_no_dropout(node)))
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
  keep_constants(node, copy);
  if (is_norm_in_training(node))
    leave_out_running_statistics(copy);
  std::vector<Value*> operands = node->inputs().vec();
  // In eager PyTorch, such a gradient does not lead back to the operands.
  const auto num_tracked = std::count(requires_grad.begin(), requires_grad.end(), 1);
  if (is_linear(node) || (num_tracked == 1 && is_linear_in_each(node))) {
    for (size_t i = 0; i < requires_grad.size(); ++i) {
      if (requires_grad[i] != 0)
        operands[i] = graph.insert(c10::aten::detach, {operands[i]});
    }
  }
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
