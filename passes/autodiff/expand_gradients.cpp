#include "passes/autodiff/expand_gradients.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ir/dead_code.h"
#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "passes/autodiff/backward_steps.h"
#include "passes/autodiff/fold_known.h"
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

// Returns whether the node asks for sizes, types and the like alone, which eager keeps beside a
// graph that it frees.
bool asks_for_metadata(const Node* node) {
  const auto outputs = node->outputs();
  return reads_metadata_only(node, 0) ||
         (has_fact(node, Fact::kKnownFromMetadata) &&
          std::none_of(outputs.begin(), outputs.end(),
                       [](const auto* output) { return contains_tensor(*output->type()); }));
}

// Returns whether one of the nodes from `first` to `end` reads a tensor of the forward: eager has
// saved it for them. `gradients` are what the backward has computed before.
bool reads_forward(const Node* first, const Node* end,
                   const std::unordered_set<const Value*>& gradients) {
  std::unordered_set<const Value*> inner;
  for (const auto* node = first; node != end; node = node->next()) {
    for (const auto* input : node->inputs()) {
      if (contains_tensor(*input->type()) && inner.count(input) == 0 &&
          gradients.count(input) == 0 && input->node()->kind() != c10::prim::Constant &&
          !asks_for_metadata(node))
        return true;
    }
    inner.insert(node->outputs().begin(), node->outputs().end());
  }
  return false;
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
    for (auto* target : all_targets) {
      require_gradient(target, with_gradient);
      sums_.require(target);
    }
    for (const auto* target : unused_targets())
      require_gradient(target, with_gradient);
    sums_.set_tracked(with_gradient);
    PreparedNodes prepared;
    const auto purpose = request_.create_graph ? Purpose::kGradientAgain : Purpose::kGradient;
    const auto steps = prepare_forward(nodes_before(graph_, node_), purpose, sums_, prepared);
    const torch::jit::WithInsertPoint guard(node_);
    auto* before = node_->prev();
    add_output_gradients();
    insert_backward(graph_, steps, [&](const BackwardStep& step, Node* first) {
      if (!request_.retain_graph && reads_forward(first, node_, gradients_)) {
        for (auto* node : step.nodes)
          node->i_(symbols::kFreed, 1);
      }
      note_gradients(first);
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
      gradients_.insert(gradient);
      sums_.add(output, gradient);
    }
    note_gradients(before->next());
  }

  void note_gradients(const Node* first) {
    for (const auto* node = first; node != node_; node = node->next())
      gradients_.insert(node->outputs().begin(), node->outputs().end());
  }

  Graph& graph_;
  Node* node_;
  GradientRequest request_;
  GradientSums sums_;
  std::unordered_set<const Value*> gradients_;
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
