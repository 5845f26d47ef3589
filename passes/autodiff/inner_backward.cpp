#include "passes/autodiff/inner_backward.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// Notes the values that a gradient of the method passes through, for strategies that ask.
void note_reached_values(JointGraph& joint) {
  auto& path = joint.requires_grad;
  ReachedValues inputs;
  for (const auto* input : joint.graph->inputs()) {
    if (path.count(input->unique()) != 0)
      inputs.insert(input);
  }
  // What differentiate() has noted counts, too.
  const auto starts = [&](const Node* node) {
    const auto outputs = node->outputs();
    return node->kind() == symbols::kRequireGrad ||
           std::any_of(outputs.begin(), outputs.end(),
                       [&](const auto* output) { return path.count(output->unique()) != 0; });
  };
  for (const auto* value :
       reach_forward(*joint.graph, std::move(inputs), starts, nullptr, joint.backward_start))
    path.insert(value->unique());
  for (size_t i = 0; i < joint.num_outputs; ++i)
    joint.output_requires_grad[i] = path.count(joint.graph->outputs()[i]->unique()) != 0;
}

}  // namespace

void begin_inner_backward(JointGraph& joint) {
  const auto forward = joint.forward_nodes();
  const auto first = std::find_if(forward.begin(), forward.end(), [](const Node* node) {
    const auto outputs = node->outputs();
    return node->hasAttribute(symbols::kBackwardOf) &&
           std::any_of(outputs.begin(), outputs.end(),
                       [](const auto* output) { return contains_tensor(*output->type()); });
  });
  if (first == forward.end())
    return;
  if (!joint.vjp_outputs.empty()) {
    joint.inner_backward = *first;
    return;
  }
  joint.backward_start->moveBefore(*first);
  joint.has_inner_backward = true;
  note_reached_values(joint);
}

void end_inner_backward(JointGraph& joint) {
  if (!joint.has_inner_backward)
    return;
  joint.backward_start->moveBefore(joint.graph->return_node());
}

}  // namespace aten_recompute
