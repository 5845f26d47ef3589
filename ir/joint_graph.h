// Forward and backward of one region in one graph, before it is decided what is saved.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// The operators that a gradient passes through, by where their gradient comes from: names in the
// order of the forward. Casts, markers, and making and indexing lists are not listed: they only
// pass gradients on.
struct DifferentiatedOperators {
  std::vector<std::string> by_rule;  // by a rule in rules/
  std::vector<std::string> by_user_rule;
  std::vector<std::string> on_tape;  // without a rule
};

// An output whose backward raises, because autograd.grad() in the method has freed what it needs.
struct FreedOutput {
  size_t output;
  // The inputs to which a freed graph leads.
  std::vector<size_t> inputs{};
  // Whether a freed graph leads to a leaf that the method made and does not return.
  bool leads_to_own_leaf = false;
  // Whether it depends on other inputs, too, which get their gradients where nobody asks for those
  // of `inputs` and of such a leaf.
  bool depends_on_others = false;
};

// For  y, n = f(x, w)  with x and w requiring grad, n an int:
//
//   graph(x, w, dy):              // region inputs, then one vjp per output that has a gradient
//     h  = aten::mm(x, w)         // forward
//     y  = aten::relu(h)
//     n  = aten::size(x, 0)
//     aten_recompute::backward_start()
//     dh = aten::threshold_backward(dy, y, 0)
//     dw = aten::mm(aten::t(x), dh)
//     dx = aten::mm(dh, aten::t(w))
//     return (y, n, dx, dw)       // the region's outputs, then gradients
//
//   num_inputs = 2, num_outputs = 2
//   vjp_outputs = {0}             // graph input 2 + k is the vjp of output vjp_outputs[k]
//   gradient_inputs = {0, 1}      // graph output 2 + k is the gradient of input gradient_inputs[k]
//   output_requires_grad = {true, false}
//
// Backward nodes read forward values directly; which of them are kept and which computed again is
// for the plan to say and for splice() to do.
struct JointGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  torch::jit::Node* backward_start = nullptr;
  size_t num_inputs = 0;
  size_t num_outputs = 0;
  std::vector<size_t> vjp_outputs;
  std::vector<size_t> gradient_inputs;
  std::vector<bool> output_requires_grad;
  std::vector<FreedOutput> freed;  // those that depend on no others have no vjp
  // Value::unique() of the forward values and region inputs that a gradient passes through.
  std::unordered_set<size_t> requires_grad;
  DifferentiatedOperators operators;
  // The first node of a gradient that the method asks for, where the region has a backward of its
  // own as well; nullptr: there is none. From it on, nodes of the forward are served, too
  // (planner/model/problem.h).
  torch::jit::Node* inner_backward = nullptr;
  // What stands behind backward_start are gradients that the method asks for: they run in the
  // region's forward (passes/autodiff/inner_backward.h).
  bool has_inner_backward = false;

  // The nodes before and after backward_start, in order, constants included. Lists of their own, so
  // that the graph may be changed while one goes through them.
  std::vector<torch::jit::Node*> forward_nodes() const;
  std::vector<torch::jit::Node*> backward_nodes() const;
};

}  // namespace aten_recompute
