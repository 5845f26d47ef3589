#include "passes/profile/joint_program.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "ir/symbols.h"
#include "rules/recomputability.h"

namespace aten_recompute {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

bool JointProgram::is_of_program(size_t index) const {
  return index < num_forward ||
         (index < num_before_loss && !nodes[index]->hasAttribute(symbols::kBackwardOf));
}

std::vector<c10::IValue> JointProgram::operands(size_t index,
                                                const Program::Registers& registers) const {
  std::vector<c10::IValue> operands;
  for (const auto& operand : program.instructions()[index].operands) {
    operands.push_back(operand.is_constant ? program.constant(operand.index)
                                           : registers[operand.index]);
  }
  return operands;
}

bool draws_random_numbers(const JointProgram& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(),
                     [](const Node* node) { return draws_random_numbers(node); });
}

JointProgram make_joint_program(const JointGraph& joint) {
  auto graph = std::make_shared<Graph>();
  std::vector<Node*> nodes;
  size_t num_forward = 0;
  std::unordered_map<Value*, Value*> copies;
  for (auto* input : joint.graph->inputs())
    copies[input] = graph->addInput()->setType(input->type());
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start) {
      num_forward = nodes.size();
      continue;
    }
    auto* copy =
        graph->insertNode(graph->createClone(node, [&](Value* v) { return copies.at(v); }));
    for (size_t i = 0; i < node->outputs().size(); ++i)
      copies[node->output(i)] = copy->output(i);
    if (node->kind() != c10::prim::Constant)
      nodes.push_back(node);
  }
  for (auto* output : joint.graph->outputs())
    graph->registerOutput(copies.at(output));
  // An output that nobody reads would have no register.
  for (auto* node : graph->nodes()) {
    if (node->kind() == c10::prim::Constant)
      continue;
    for (auto* output : node->outputs()) {
      if (!output->hasUses())
        graph->registerOutput(output);
    }
  }
  const auto num_before_loss = joint.has_inner_backward ? nodes.size() : num_forward;
  return {Program(std::move(graph)), std::move(nodes), num_forward, num_before_loss};
}

}  // namespace aten_recompute
