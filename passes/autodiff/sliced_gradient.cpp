#include "passes/autodiff/sliced_gradient.h"

#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ir/dead_code.h"
#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/sliced.h"
#include "runtime/undefined_gradients.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

}  // namespace

void require_sliced_results(Node* node, GradientSums& sums) {
  const auto& graph = *node->g(c10::attr::Subgraph);
  const auto reached = reach_forward(graph, reached_inputs(node, [&](const Value* operand) {
                                       return sums.requires_grad(operand);
                                     }));
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    if (reached.count(graph.outputs()[i]) != 0)
      sums.require_tensor(node->output(i));
  }
}

void insert_sliced_gradient(Node* node, GradientSums& sums,
                            const DifferentiateStretch& differentiate_stretch) {
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
  const auto stretch = node->g(c10::attr::Subgraph);
  const auto gradients = differentiate_stretch(stretch, requires_grad, has_gradient);
  const auto& subgraph = gradients.graph;
  remove_dead_code(subgraph->block());
  auto operands = node->inputs().vec();
  auto operand_rows = node->is(symbols::kOperandRows);
  const auto result_rows = node->is(symbols::kResultRows);
  for (const auto result : gradients.results) {
    operands.push_back(sums.gradient_of(node->output(result)));
    // Each slice adds the same to a sum, so each gets all of its gradient.
    operand_rows.push_back(result_rows[result] >= 0 ? result_rows[result] : kWhole);
  }
  const auto inputs = subgraph->inputs();
  std::vector<const Value*> taken(
      inputs.end() - static_cast<std::ptrdiff_t>(gradients.results.size()), inputs.end());
  std::vector<int64_t> gradient_rows;
  for (const auto operand : gradients.operands)
    gradient_rows.push_back(operand_rows[operand] >= 0 ? operand_rows[operand] : kSummed);
  std::vector<std::pair<const Value*, int64_t>> broadcasts;
  const auto& given = node->is(symbols::kBroadcasts);
  for (size_t i = 0; i + 1 < given.size(); i += 2)
    broadcasts.emplace_back(subgraph->inputs()[static_cast<size_t>(given[i])], given[i + 1]);
  for (size_t i = subgraph->inputs().size(); i-- > 0;) {
    if (subgraph->inputs()[i]->hasUses())
      continue;
    const Value* unread = subgraph->inputs()[i];
    std::erase_if(broadcasts, [&](const auto& each) { return each.first == unread; });
    std::erase(taken, unread);
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
  std::vector<int64_t> places;
  for (const auto& [input, dimension] : broadcasts) {
    places.push_back(static_cast<int64_t>(input->offset()));
    places.push_back(dimension);
  }
  added->is_(symbols::kBroadcasts, std::move(places));
  std::vector<int64_t> taken_at;
  for (const auto* gradient : taken)
    taken_at.push_back(static_cast<int64_t>(gradient->offset()));
  added->is_(kGradientOperands, std::move(taken_at));
  for (size_t i = 0; i < gradients.operands.size(); ++i)
    sums.add(node->input(gradients.operands[i]), added->output(i)->setType(c10::TensorType::get()));
}

}  // namespace aten_recompute
