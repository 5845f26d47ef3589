#include "passes/autodiff/expand_gradients.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <utility>

#include "ir/dead_code.h"
#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/backward_steps.h"
#include "passes/autodiff/fold_known.h"
#include "passes/autodiff/freed_graph.h"
#include "passes/autodiff/operand_views.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

std::vector<Node*> nodes_before(Graph& graph, const Node* end) {
  std::vector<Node*> nodes;
  for (auto* node : graph.nodes()) {
    if (node == end)
      break;
    nodes.push_back(node);
  }
  return nodes;
}

class Expansion {
 public:
  Expansion(Graph& graph, Node* node)
      : graph_(graph), node_(node), request_(GradientRequest::of(*node)), sums_(graph) {}

  void run(const std::vector<bool>& requires_grad) {
    if (request_.create_graph)
      insert_operand_views(graph_, node_);
    const auto with_gradient = values_that_require_grad(graph_, requires_grad, node_);
    for (int64_t i = 0; i < request_.num_outputs; ++i) {
      if (with_gradient.count(node_->input(static_cast<size_t>(i))) == 0)
        throw NotDifferentiable("the method asks for the gradient of a value that has none");
    }
    const auto all_targets = targets();
    const auto outputs = node_->inputs().slice(0, static_cast<size_t>(request_.num_outputs));
    if (passes_freed_node(graph_, all_targets, outputs, node_))
      throw NotDifferentiable("the method asks for a gradient through a graph that it has freed");
    for (auto* target : all_targets) {
      require_gradient(target, with_gradient);
      sums_.require(target);
    }
    for (const auto* target : unused_targets())
      require_gradient(target, with_gradient);
    remove_checks();
    if (all_targets.empty())
      return node_->destroy();
    sums_.set_tracked(with_gradient);
    sums_.set_real(request_.is_real);
    PreparedNodes prepared;
    const auto purpose = request_.create_graph ? Purpose::kGradientAgain : Purpose::kGradient;
    const auto steps = prepare_forward(nodes_before(graph_, node_), purpose, sums_, prepared,
                                       /*frees_graph=*/!request_.retain_graph);
    const torch::jit::WithInsertPoint guard(node_);
    auto* before = node_->prev();
    add_output_gradients();
    insert_backward(graph_, steps, [&](const BackwardStep& step, Node* first) {
      if (!request_.retain_graph)
        freed_.mark(step.nodes, first, node_);
      freed_.add_gradients(first, node_);
    });
    for (size_t i = 0; i < all_targets.size(); ++i) {
      auto* gradient = sums_.gradient_of(all_targets[i]);
      if (gradient == nullptr)
        throw NotDifferentiable("the method asks for a gradient that is undefined");
      node_->output(i)->replaceAllUsesWith(gradient);
    }
    if (!request_.create_graph) {
      for (auto* added = before->next(); added != node_; added = added->next()) {
        if (added->kind() != c10::prim::Constant)
          added->i_(symbols::kWithoutGraph, 1);
      }
    }
    node_->destroy();
  }

 private:
  static void require_gradient(const Value* target, const ReachedValues& with_gradient) {
    if (with_gradient.count(target) == 0)
      throw NotDifferentiable("the method asks for a gradient of what requires none");
  }

  // Removes the checks that read the last result: eager PyTorch does not raise here.
  void remove_checks() {
    auto* has_run = node_->outputs().back();
    while (has_run->hasUses())
      has_run->uses().front().user->destroy();
  }

  // Returns the targets that the outputs do not depend on.
  std::vector<Value*> unused_targets() const {
    return node_->inputs().slice(request_.num_used_operands()).vec();
  }

  std::vector<Value*> targets() const {
    const auto inputs = node_->inputs();
    return inputs
        .slice(static_cast<size_t>(request_.num_outputs), static_cast<size_t>(request_.num_targets))
        .vec();
  }

  void add_output_gradients() {
    const auto num_outputs = static_cast<size_t>(request_.num_outputs);
    auto next = num_outputs + static_cast<size_t>(request_.num_targets);
    auto* before = node_->prev();
    for (size_t i = 0; i < num_outputs; ++i) {
      auto* output = node_->input(i);
      auto* gradient = request_.has_gradient[i] != 0
                           ? node_->input(next++)
                           : graph_.insert(c10::aten::ones_like, {output});
      freed_.add_gradient(gradient);
      sums_.add(output, gradient);
    }
    freed_.add_gradients(before->next(), node_);
  }

  Graph& graph_;
  Node* node_;
  GradientRequest request_;
  GradientSums sums_;
  FreedGraph freed_;
};

}  // namespace

std::shared_ptr<Graph> expand_gradients(const std::shared_ptr<Graph>& forward,
                                        const std::vector<bool>& requires_grad) {
  const auto nodes = forward->nodes();
  if (std::none_of(nodes.begin(), nodes.end(),
                   [](const Node* node) { return node->kind() == symbols::kGradient; }))
    return forward;
  auto graph = forward->copy();
  std::vector<Node*> gradients;
  for (auto* node : graph->nodes()) {
    if (node->kind() == symbols::kGradient)
      gradients.push_back(node);
  }
  for (auto* node : gradients) {
    Expansion(*graph, node).run(requires_grad);
    fold_known(graph);  // decides the formulas' `if`s, which no gradient passes through
  }
  torch::jit::LowerSimpleTuples(graph->block());
  remove_dead_code(graph->block());
  return graph;
}

}  // namespace aten_recompute
