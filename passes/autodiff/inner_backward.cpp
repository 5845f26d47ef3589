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

// Returns whether the node is part of a gradient that the method asks for.
bool is_of_gradient(const Node* node) {
  return node->hasAttribute(symbols::kBackwardOf) && makes_tensors(node);
}

// Returns whether another gradient follows operators of the forward that stand behind the first,
// such as the energy of a second potential. [first, end): the nodes from the first gradient on.
template <typename Iterator>
bool has_gradient_after_more_forward(Iterator first, Iterator end) {
  const auto more = std::find_if(first, end, [](const Node* node) {
    return !is_of_gradient(node) && makes_tensors(node) && !is_pure_view(node);
  });
  return std::find_if(more, end, is_of_gradient) != end;
}

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

void begin_inner_backward(JointGraph& joint, bool may_serve_forward) {
  const auto forward = joint.forward_nodes();
  const auto first = std::find_if(forward.begin(), forward.end(), is_of_gradient);
  if (first == forward.end())
    return;
  if (!joint.vjp_outputs.empty() ||
      (may_serve_forward && has_gradient_after_more_forward(first, forward.end()))) {
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
