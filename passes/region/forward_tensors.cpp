#include "passes/region/forward_tensors.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <set>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "ir/symbols.h"
#include "passes/autodiff/differentiate.h"
#include "passes/autodiff/expand_gradients.h"
#include "passes/profile/profile.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;

// Returns what the node needs.
OperatorNeeds needs_of_node(const Node* node, const Profile& costs) {
  OperatorNeeds needs;
  if (const auto found = costs.nodes.find(node); found != costs.nodes.end())
    needs.workspace_bytes = found->second.workspace_bytes;
  needs.bytes = needs.workspace_bytes;
  std::set<int32_t> counted;
  for (const auto& values : {node->inputs(), node->outputs()}) {
    for (const auto* value : values) {
      const auto found = costs.storages.find(value->unique());
      if (found == costs.storages.end())
        continue;
      for (const auto storage : found->second) {
        if (!costs.storage_is_callers[storage] && counted.insert(storage).second)
          needs.bytes += costs.storage_bytes[storage];
      }
    }
  }
  return needs;
}

// Returns the number of the node of the forward that this node is or belongs to.
std::optional<size_t> number_of(const Node* node) {
  for (const auto attribute : {symbols::kNumber, symbols::kOfNumber}) {
    if (node->hasAttribute(attribute))
      return static_cast<size_t>(node->i(attribute));
  }
  return std::nullopt;
}

JointGraph without_backward(const std::shared_ptr<Graph>& forward) {
  JointGraph joint;
  joint.graph = forward->copy();
  joint.num_inputs = joint.graph->inputs().size();
  joint.num_outputs = joint.graph->outputs().size();
  joint.backward_start =
      joint.graph->appendNode(joint.graph->create(symbols::kBackwardStart, /*num_outputs=*/0));
  return joint;
}

}  // namespace

ForwardTensors::ForwardTensors(const std::shared_ptr<Graph>& forward,
                               const std::vector<bool>& requires_grad,
                               const std::vector<c10::IValue>& inputs,
                               const ProfileAssumptions& seen, std::optional<at::Device> described,
                               ProfileLimit limit) {
  // Nodes are found again by number where others are put between them, or in their place.
  const auto numbered = forward->copy();
  int64_t count = 0;
  for (auto* node : numbered->nodes()) {
    node->i_(symbols::kNumber, count++);
    outputs_.emplace_back(node->outputs().size());
  }
  const auto run = [&](const JointGraph& joint) {
    return profile(joint, inputs, CostModel::kFlops, seen, described, limit);
  };
  const auto expanded = expand_gradients(numbered, requires_grad);
  const auto alone = without_backward(expanded);
  note_tensors(alone, run(alone));
  needs_.resize(outputs_.size());
  const std::vector<bool> all(expanded->outputs().size(), true);
  const auto joint = differentiate(expanded, requires_grad, all);
  note_needs(joint, run(joint));
}

void ForwardTensors::note_tensors(const JointGraph& joint, const Profile& costs) {
  const auto tensors = [&](const torch::jit::Value* value) {
    const auto found = costs.tensors.find(value->unique());
    return found == costs.tensors.end() ? std::vector<TensorDescription>{} : found->second;
  };
  for (const auto* value : joint.graph->inputs())
    inputs_.push_back(tensors(value));
  for (const auto* node : joint.graph->nodes()) {
    if (!node->hasAttribute(symbols::kNumber))
      continue;
    auto& outputs = outputs_.at(static_cast<size_t>(node->i(symbols::kNumber)));
    for (size_t i = 0; i < std::min(outputs.size(), node->outputs().size()); ++i)
      outputs[i] = tensors(node->output(i));
  }
}

void ForwardTensors::note_needs(const JointGraph& joint, const Profile& costs) {
  for (const auto* node : joint.graph->nodes()) {
    const auto number = number_of(node);
    if (!number)
      continue;
    const auto needs = needs_of_node(node, costs);
    if (needs.bytes > needs_.at(*number).bytes)
      needs_[*number] = needs;
  }
}

int64_t ForwardTensors::largest_need() const {
  int64_t largest = 0;
  for (const auto& needs : needs_)
    largest = std::max(largest, needs.bytes);
  return largest;
}

KnownTensors ForwardTensors::of(const Graph& forward) const {
  KnownTensors known;
  for (size_t i = 0; i < inputs_.size(); ++i)
    known[forward.inputs()[i]->unique()] = inputs_[i];
  size_t number = 0;
  for (const auto* node : forward.nodes()) {
    for (size_t i = 0; i < node->outputs().size(); ++i)
      known[node->output(i)->unique()] = outputs_.at(number).at(i);
    ++number;
  }
  return known;
}

std::unordered_map<const Node*, OperatorNeeds> ForwardTensors::needs_of(
    const Graph& forward) const {
  std::unordered_map<const Node*, OperatorNeeds> needs;
  size_t number = 0;
  for (const auto* node : forward.nodes())
    needs[node] = needs_.at(number++);
  return needs;
}

}  // namespace aten_recompute
