#include "runtime/inner_gradient.h"

#include <ATen/ops/alias.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ir/symbols.h"
#include "runtime/autograd_modes.h"
#include "runtime/path_check.h"
#include "runtime/returned_leaf.h"

namespace aten_recompute {
namespace {

using torch::autograd::variable_list;
using torch::jit::Node;
using torch::jit::Operation;
using torch::jit::Operator;
using torch::jit::Stack;

const auto kNumOutputs = c10::Symbol::attr("num_outputs");
const auto kNumTargets = c10::Symbol::attr("num_targets");
const auto kCreateGraph = c10::Symbol::attr("create_graph");
const auto kRetainGraph = c10::Symbol::attr("retain_graph");

variable_list tensors_of(const Stack& values, size_t begin, size_t count) {
  variable_list tensors;
  for (size_t i = begin; i < begin + count; ++i)
    tensors.push_back(values[i].toTensor());
  return tensors;
}

Operation gradient(const Node* node) {
  const auto request = GradientRequest::of(*node);
  const auto num_operands = node->inputs().size();
  return [request, num_operands](Stack& stack) {
    const auto operands = torch::jit::pop(stack, num_operands);
    const auto num_outputs = static_cast<size_t>(request.num_outputs);
    const auto num_targets = static_cast<size_t>(request.num_targets);
    variable_list given;
    for (size_t i = 0, next = num_outputs + num_targets; i < num_outputs; ++i)
      given.push_back(request.has_gradient[i] != 0 ? operands[next++].toTensor() : at::Tensor());
    auto targets = tensors_of(operands, num_outputs, num_targets);
    const auto num_used = request.num_used_operands();
    const auto unused = tensors_of(operands, num_used, operands.size() - num_used);
    targets.insert(targets.end(), unused.begin(), unused.end());
    auto results = torch::autograd::grad(tensors_of(operands, 0, num_outputs), targets, given,
                                         request.retain_graph, request.create_graph,
                                         /*allow_unused=*/true);
    results.resize(num_targets);
    // The outputs depend on these targets, so that each has a gradient. It may be undefined all the
    // same: that of a gradient which does not depend on the target, or one that a custom function
    // leaves out.
    for (auto& result : results) {
      if (!result.defined())
        leave_all_paths("a gradient that the method asks for is undefined");
      stack.emplace_back(with_memory(result));
    }
    stack.emplace_back(true);
  };
}

// Returns whether requires_grad_() makes a leaf of the tensor.
bool becomes_leaf(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && !tensor.requires_grad();
}

void require_grad(Stack& stack) {
  auto tensor = torch::jit::pop(stack).toTensor();
  if (becomes_leaf(tensor))
    tensor = tensor.detach().requires_grad_();
  stack.emplace_back(std::move(tensor));
}

void require_grad_at_place(Stack& stack) {
  const auto place = torch::jit::pop(stack).toTensor();
  auto tensor = torch::jit::pop(stack).toTensor();
  if (becomes_leaf(tensor))
    tensor = lead_gradient_to(tensor, place);
  stack.emplace_back(std::move(tensor));
}

Operation operator_gradient(const Node* node) {
  const auto code =
      std::make_shared<torch::jit::Code>(node->g(c10::attr::Subgraph), "operator_gradient");
  const auto num_given = node->inputs().size() - node->is(symbols::kRequiresGrad).size();
  return [code, requires_grad = node->is(symbols::kRequiresGrad),
          is_target = node->is(symbols::kIsTarget), has_gradient = node->is(symbols::kHasGradient),
          num_given](Stack& stack) {
    const auto given = torch::jit::pop(stack, num_given);
    auto operands = torch::jit::pop(stack, requires_grad.size());
    const bool records_graph = at::GradMode::is_enabled();
    const OrdinaryAutograd guard;
    variable_list targets;
    for (size_t i = 0; i < operands.size(); ++i) {
      // What an integer is computed from may require grad.
      if (requires_grad[i] == 0 ||
          (is_target[i] == 0 && !operands[i].toTensor().is_floating_point() &&
           !operands[i].toTensor().is_complex()))
        continue;
      auto operand = beginning_of_graph(operands[i].toTensor(), records_graph);
      if (is_target[i] != 0)
        targets.push_back(operand);
      operands[i] = std::move(operand);
    }
    torch::jit::InterpreterState(*code).run(operands);
    variable_list outputs, gradients;
    for (size_t i = 0, next = 0; i < operands.size(); ++i) {
      if (has_gradient[i] == 0)
        continue;
      const auto& gradient = given[next++].toTensor();
      if (!operands[i].toTensor().requires_grad())
        continue;
      outputs.push_back(operands[i].toTensor());
      gradients.push_back(gradient);
    }
    operands.clear();
    const auto results = gradients_of(std::move(outputs), targets, gradients, records_graph);
    for (size_t i = 0; i < targets.size(); ++i)
      stack.emplace_back(results[i].defined() ? with_memory(results[i])
                                              : at::zeros_like(targets[i]));
  };
}

}  // namespace

std::vector<at::Tensor> gradients_of(std::vector<at::Tensor>&& outputs,
                                     const std::vector<at::Tensor>& inputs,
                                     const std::vector<at::Tensor>& gradients, bool create_graph) {
  if (outputs.empty())
    return std::vector<at::Tensor>(inputs.size());
  torch::autograd::edge_list from, to;
  for (const auto& output : outputs)
    from.push_back(torch::autograd::impl::gradient_edge(output));
  for (const auto& input : inputs)
    to.push_back(torch::autograd::impl::gradient_edge(input));
  outputs.clear();
  return torch::autograd::Engine::get_default_engine().execute(
      from, gradients, /*keep_graph=*/create_graph, create_graph, /*accumulate_grad=*/false, to);
}

at::Tensor beginning_of_graph(const at::Tensor& operand, bool records_graph) {
  if (!records_graph || !operand.requires_grad())
    return operand.detach().requires_grad_();
  return operand.has_storage() ? at::alias(operand) : operand.clone();  // a sparse tensor has none
}

at::Tensor with_memory(const at::Tensor& gradient) {
  return gradient.defined() && gradient._is_zerotensor() ? gradient.clone() : gradient;
}

size_t GradientRequest::num_used_operands() const {
  const auto num_given = std::count(has_gradient.begin(), has_gradient.end(), 1);
  return static_cast<size_t>(num_outputs + num_targets + num_given);
}

GradientRequest GradientRequest::of(const Node& node) {
  GradientRequest request;
  request.num_outputs = node.i(kNumOutputs);
  request.num_targets = node.i(kNumTargets);
  request.has_gradient = node.is(symbols::kHasGradient);
  request.create_graph = node.i(kCreateGraph) != 0;
  request.retain_graph = node.i(kRetainGraph) != 0;
  request.is_real = node.hasAttribute(symbols::kIsReal);
  return request;
}

void GradientRequest::write(Node& node) const {
  node.i_(kNumOutputs, num_outputs);
  node.i_(kNumTargets, num_targets);
  node.is_(symbols::kHasGradient, has_gradient);
  node.i_(kCreateGraph, create_graph ? 1 : 0);
  node.i_(kRetainGraph, retain_graph ? 1 : 0);
  node.i_(symbols::kNumDependencies, static_cast<int64_t>(num_used_operands()));
  if (is_real)
    node.i_(symbols::kIsReal, 1);
}

void register_inner_gradient_operators() {
  const auto pure = c10::AliasAnalysisKind::PURE_FUNCTION;
  static const torch::jit::RegisterOperators registered({
      Operator(symbols::kGradient, gradient, pure),
      Operator(symbols::kOperatorGradient, operator_gradient, pure),
      Operator("aten_recompute::require_grad(Tensor(a) self) -> Tensor(a)", require_grad,
               c10::AliasAnalysisKind::FROM_SCHEMA),
      Operator("aten_recompute::require_grad.place(Tensor(a) self, Tensor place) -> Tensor(a)",
               require_grad_at_place, c10::AliasAnalysisKind::FROM_SCHEMA),
  });
}

}  // namespace aten_recompute
