// Operators for gradients that a method itself asks for.
//
//   gradient             autograd.grad() of a path, without its lists. It runs where a region is not
//                        planned; elsewhere expand_gradients() puts formulas in its place
//   require_grad         requires_grad_() of a tensor that the path made. Its gradient goes to the
//                        second operand, if there is one (runtime/returned_leaf.h)
//   operator_gradient    the gradients of one operator, which runs again for them under autograd.
//                        Takes the place of a formula that cannot be differentiated once more
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// What an aten_recompute::gradient is asked for. Its operands are `num_outputs` values whose
// gradients are asked for, then the targets, then a gradient for each output that is given one,
// then targets that no output depends on: eager PyTorch raises where one of these requires no
// gradient. It has one result for each of the first targets, and then True, which says that eager
// has not raised: a check of the path reads it, so that the node stays where nothing else is read.
struct GradientRequest {
  int64_t num_outputs = 0;
  int64_t num_targets = 0;
  std::vector<int64_t> has_gradient;  // per output: 1 if its gradient is given
  bool create_graph = false;
  bool retain_graph = false;
  bool is_real = false;  // symbols::kIsReal

  // The number of operands in front of the targets that no output depends on.
  size_t num_used_operands() const;

  // Reads the attributes of such a node.
  static GradientRequest of(const torch::jit::Node& node);
  // Sets them.
  void write(torch::jit::Node& node) const;
};

// Returns the gradients of the inputs of a graph, given those of its outputs, each of which
// requires grad; undefined ones where no output depends on an input. Releases the outputs before,
// which a graph often does not hold: the caller should not hold them either.
std::vector<at::Tensor> gradients_of(std::vector<at::Tensor>&& outputs,
                                     const std::vector<at::Tensor>& inputs,
                                     const std::vector<at::Tensor>& gradients, bool create_graph);

// Returns the operand as the beginning of a graph of its own: a leaf, or where a graph is recorded
// another name of it, because one tensor may be two operands.
at::Tensor beginning_of_graph(const at::Tensor& operand, bool records_graph);

// Returns the gradient in memory that can be written to: autograd gives zeros without any for
// operators such as sgn. An undefined gradient stays undefined.
at::Tensor with_memory(const at::Tensor& gradient);

// Registers the operators (register/operators.cpp).
void register_inner_gradient_operators();

}  // namespace aten_recompute
