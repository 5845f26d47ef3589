#include "passes/autodiff/sliced_gradient.h"

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/dead_code.h"
#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/differentiate.h"
#include "runtime/sliced.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// Returns the joint graph of the stretch, of which only the gradients are results.
std::shared_ptr<Graph> graph_of_gradients(JointGraph& joint) {
  auto& graph = joint.graph;
  for (size_t i = 0; i < joint.num_outputs; ++i)
    graph->eraseOutput(0);
  joint.backward_start->destroy();
  joint.backward_start = nullptr;
  remove_dead_code(graph->block());
  return graph;
}

}  // namespace

void require_sliced_results(Node* node, GradientSums& sums) {
  const auto& graph = *node->g(c10::attr::Subgraph);
  ReachedValues inputs;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (sums.requires_grad(node->input(i)))
      inputs.insert(graph.inputs()[i]);
  }
  const auto reached = reach_forward(graph, std::move(inputs));
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    if (reached.count(graph.outputs()[i]) != 0)
      sums.require_tensor(node->output(i));
  }
}

void insert_sliced_gradient(Node* node, GradientSums& sums) {
  std::vector<bool> requires_grad, has_gradient;
  for (auto* operand : node->inputs())
    requires_grad.push_back(sums.requires_grad(operand) && is_tensor_type(*operand->type()));
  bool any = false;
  for (auto* result : node->outputs()) {
    has_gradient.push_back(sums.gradient_of(result) != nullptr);
    any = any || has_gradient.back();
  }
  if (!any)
    return;
  auto joint = differentiate(node->g(c10::attr::Subgraph), requires_grad, has_gradient);
  auto operands = node->inputs().vec();
  auto operand_rows = node->is(symbols::kOperandRows);
  const auto result_rows = node->is(symbols::kResultRows);
  for (const auto output : joint.vjp_outputs) {
    operands.push_back(sums.gradient_of(node->output(output)));
    // Each slice adds the same to a sum, so each gets all of its gradient.
    operand_rows.push_back(result_rows[output] >= 0 ? result_rows[output] : kWhole);
  }
  std::vector<int64_t> gradient_rows;
  for (const auto input : joint.gradient_inputs)
    gradient_rows.push_back(operand_rows[input] >= 0 ? operand_rows[input] : kSummed);
  const auto subgraph = graph_of_gradients(joint);
  for (size_t i = subgraph->inputs().size(); i-- > 0;) {
    if (subgraph->inputs()[i]->hasUses())
      continue;
    subgraph->eraseInput(i);
    operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(i));
    operand_rows.erase(operand_rows.begin() + static_cast<std::ptrdiff_t>(i));
  }
  auto& graph = *node->owningGraph();
  auto* added = graph.insertNode(graph.create(symbols::kSliced, operands, gradient_rows.size()));
  added->g_(c10::attr::Subgraph, subgraph)
      ->is_(symbols::kOperandRows, operand_rows)
      ->is_(symbols::kResultRows, gradient_rows)
      ->i_(symbols::kSlices, node->i(symbols::kSlices));
  for (size_t i = 0; i < joint.gradient_inputs.size(); ++i)
    sums.add(node->input(joint.gradient_inputs[i]),
             added->output(i)->setType(c10::TensorType::get()));
}

}  // namespace aten_recompute
