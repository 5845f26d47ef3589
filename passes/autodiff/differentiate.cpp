#include "passes/autodiff/differentiate.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>
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
#include "passes/autodiff/gradient_sums.h"
#include "passes/autodiff/hoist_metadata.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/autodiff/operand_views.h"
#include "passes/autodiff/sum_parts.h"
#include "passes/manager/pass_manager.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Appends backward_start, and adds an input for the gradient of each output that has one.
void start_backward(JointGraph& joint, const std::vector<bool>& vjp_defined, GradientSums& sums) {
  auto& graph = *joint.graph;
  joint.backward_start = graph.appendNode(graph.create(symbols::kBackwardStart, /*num_outputs=*/0));
  for (size_t i = 0; i < joint.num_outputs; ++i) {
    auto* output = graph.outputs()[i];
    const bool is_freed = std::any_of(
        joint.freed.begin(), joint.freed.end(),
        [&](const FreedOutput& freed) { return freed.output == i && !freed.depends_on_others; });
    const bool differentiable =
        !is_freed && sums.requires_grad(output) && is_tensor_type(*output->type());
    if (!differentiable && !is_freed && sums.requires_grad(output))
      throw NotDifferentiable("a list of tensors leaves it");
    joint.output_requires_grad.push_back(differentiable);
    if (!differentiable || !vjp_defined[i])
      continue;
    joint.vjp_outputs.push_back(i);
    auto* vjp = graph.addInput()->setType(c10::TensorType::get());
    vjp->setDebugName("grad_" + std::to_string(i));
    sums.add(output, vjp);
  }
}

// Makes the gradients of the region's inputs outputs of the graph.
void register_gradients(JointGraph& joint, const std::vector<bool>& requires_grad,
                        const GradientSums& sums) {
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* gradient = requires_grad[i] ? sums.gradient_of(joint.graph->inputs()[i]) : nullptr;
    if (gradient == nullptr)
      continue;
    joint.gradient_inputs.push_back(i);
    joint.graph->registerOutput(gradient);
  }
}

JointGraph build_joint_graph(const std::shared_ptr<Graph>& graph,
                             const std::vector<bool>& requires_grad,
                             const std::vector<bool>& vjp_defined) {
  JointGraph joint;
  joint.graph = graph;
  joint.num_inputs = graph->inputs().size();
  joint.num_outputs = graph->outputs().size();
  GradientSums sums(*graph);
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    if (requires_grad[i])
      sums.require(graph->inputs()[i]);
  }
  sums.set_tracked(values_that_require_grad(*graph, requires_grad));
  joint.freed = find_freed_outputs(*graph, requires_grad);
  PreparedNodes prepared;
  const std::vector<Node*> nodes(graph->nodes().begin(), graph->nodes().end());
  const auto steps = prepare_forward(nodes, Purpose::kBackward, sums, prepared);
  joint.operators = std::move(prepared.operators);
  joint.requires_grad = std::move(prepared.gradient_path);
  start_backward(joint, vjp_defined, sums);
  insert_backward(*graph, steps);
  register_gradients(joint, requires_grad, sums);
  for (const auto* value : sums.required())
    joint.requires_grad.insert(value->unique());
  return joint;
}

// Removes the places of leaves (runtime/returned_leaf.h) where they have their gradients: what
// marks a leaf is a view of its operand then, and computed again from that.
void forget_places(Graph& graph) {
  for (auto* node : graph.nodes()) {
    if (node->kind() == symbols::kRequireGrad && node->inputs().size() == 2)
      node->removeInput(1);
  }
}

}  // namespace

JointGraph differentiate(const std::shared_ptr<Graph>& forward,
                         const std::vector<bool>& requires_grad,
                         const std::vector<bool>& vjp_defined) {
  auto joint = build_joint_graph(forward->copy(), requires_grad, vjp_defined);
  fold_known(joint.graph);  // decides the formulas' `if needs_...`
  torch::jit::LowerSimpleTuples(joint.graph->block());
  remove_operand_views(joint.graph->block());
  remove_gradients_of(joint.graph->block());
  forget_places(*joint.graph);
  run_pass(Pass::kSumParts, joint.graph, [&] { sum_parts(joint); });
  run_pass(Pass::kHoistMetadata, joint.graph, [&] { hoist_metadata(joint); });
  remove_dead_code(joint.graph->block(), joint.backward_start);
  GRAPH_DUMP("joint graph", joint.graph);
  return joint;
}

}  // namespace aten_recompute
