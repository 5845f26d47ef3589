#include "passes/autodiff/put_on_tape.h"

#include <algorithm>
#include <vector>

#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

Node* put_on_tape(Node* node, GradientSums& sums) {
  auto subgraph = std::make_shared<Graph>();
  // An operator that reads one value twice gives it two gradients, which eager's engine adds one by
  // one, so each operand is an input of its own.
  const auto inputs = node->inputs();
  std::vector<int64_t> flags;
  auto* copy = subgraph->insertNode(subgraph->createClone(node, [&](Value* operand) {
    flags.push_back(sums.requires_grad(operand) ? 1 : 0);
    return subgraph->addInput()->setType(operand->type());
  }));
  for (auto* output : copy->outputs())
    subgraph->registerOutput(output);

  const size_t count = node->outputs().size();
  auto* tape = node->owningGraph()->create(symbols::kTapeForward, inputs, count + 1);
  tape->g_(c10::attr::Subgraph, subgraph)->is_(symbols::kRequiresGrad, flags);
  tape->copyMetadata(node);
  copy_place(node, tape);
  if (node->hasAttribute(symbols::kReadsWritten))
    tape->i_(symbols::kReadsWritten, node->i(symbols::kReadsWritten));
  tape->insertBefore(node);
  for (size_t i = 0; i < count; ++i) {
    tape->output(i)->copyMetadata(node->output(i));
    node->output(i)->replaceAllUsesWith(tape->output(i));
    if (output_is_differentiable(node, i) && contains_tensor(*tape->output(i)->type()))
      sums.require(tape->output(i));
  }
  tape->output(count)->setType(c10::AnyType::get())->setDebugName("tape");
  node->destroy();
  return tape;
}

void insert_tape_backward(Node* tape, GradientSums& sums) {
  auto& graph = *tape->owningGraph();
  const auto outputs = tape->outputs().slice(0, tape->outputs().size() - 1);
  if (std::none_of(outputs.begin(), outputs.end(),
                   [&](auto* output) { return sums.gradient_of(output) != nullptr; })) {
    return;
  }
  std::vector<Value*> arguments{tape->outputs().back()};
  for (auto* output : outputs) {
    auto* gradient = sums.gradient_of(output);
    arguments.push_back(gradient != nullptr ? gradient : graph.insertConstant(c10::IValue()));
  }
  auto* backward = graph.create(symbols::kTapeBackward, arguments, 0);
  const auto& flags = tape->is(symbols::kRequiresGrad);
  std::vector<Value*> targets;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0)
      continue;
    targets.push_back(tape->input(i));
    backward->addOutput()->setType(is_list_of_tensors(tape->input(i))
                                       ? c10::TypePtr(c10::ListType::ofTensors())
                                       : c10::TypePtr(c10::TensorType::get()));
  }
  graph.insertNode(backward);
  for (size_t i = 0; i < targets.size(); ++i)
    sums.add(targets[i], backward->output(i));
}

}  // namespace aten_recompute
