#include "passes/region/forward_tensors.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdint>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "ir/symbols.h"
#include "passes/autodiff/expand_gradients.h"
#include "passes/profile/profile.h"

namespace aten_recompute {
namespace {

const auto kNumber = c10::Symbol::attr("number_in_forward");

}  // namespace

ForwardTensors::ForwardTensors(const std::shared_ptr<torch::jit::Graph>& forward,
                               const std::vector<bool>& requires_grad,
                               const std::vector<c10::IValue>& inputs,
                               const ProfileAssumptions& seen,
                               std::optional<at::Device> described, int64_t most_bytes) {
  // Nodes are found again by number where others have been put between them.
  const auto numbered = forward->copy();
  int64_t count = 0;
  for (auto* node : numbered->nodes()) {
    node->i_(kNumber, count++);
    outputs_.emplace_back(node->outputs().size());
  }
  JointGraph joint;
  joint.graph = expand_gradients(numbered, requires_grad);
  joint.num_inputs = joint.graph->inputs().size();
  joint.num_outputs = joint.graph->outputs().size();
  joint.backward_start =
      joint.graph->appendNode(joint.graph->create(symbols::kBackwardStart, /*num_outputs=*/0));
  const auto costs = profile(joint, inputs, CostModel::kFlops, seen, described, most_bytes);
  const auto tensors = [&](const torch::jit::Value* value) {
    const auto found = costs.tensors.find(value->unique());
    return found == costs.tensors.end() ? std::vector<TensorDescription>{} : found->second;
  };
  for (const auto* value : joint.graph->inputs())
    inputs_.push_back(tensors(value));
  for (const auto* node : joint.graph->nodes()) {
    if (!node->hasAttribute(kNumber))
      continue;
    auto& outputs = outputs_.at(static_cast<size_t>(node->i(kNumber)));
    for (size_t i = 0; i < std::min(outputs.size(), node->outputs().size()); ++i)
      outputs[i] = tensors(node->output(i));
  }
}

KnownTensors ForwardTensors::of(const torch::jit::Graph& forward) const {
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

}  // namespace aten_recompute
