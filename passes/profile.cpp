#include "passes/profile.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "backend/autograd_modes.h"
#include "backend/program.h"
#include "backend/random_state.h"
#include "passes/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Value;

bool shares_storage(const at::Tensor& tensor, const c10::IValue& other) {
  if (!other.isTensor())
    return false;
  const auto& base = other.toTensor();
  return base.defined() && base.has_storage() && tensor.storage().is_alias_of(base.storage());
}

int64_t bytes_of(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage())
    return 0;
  return static_cast<int64_t>(value.toTensor().nbytes());
}

// What autograd saves on a tape is its own affair; most operators save one of inputs and outputs,
// so the larger is the guess.
int64_t tape_bytes(const Program::Instruction& instruction, const Program::Registers& registers) {
  int64_t bytes = 0;
  for (const auto& operand : instruction.operands) {
    if (!operand.is_constant)
      bytes = std::max(bytes, bytes_of(registers[operand.index]));
  }
  for (auto output : instruction.outputs) {
    if (output >= 0)
      bytes = std::max(bytes, bytes_of(registers[output]));
  }
  return bytes;
}

}  // namespace

ValueBytes profile_bytes(const JointGraph& joint, const std::vector<c10::IValue>& inputs,
                         const std::vector<bool>& requires_grad) {
  // A graph of the forward alone; `uniques` leads from its values back to the joint graph's.
  auto graph = std::make_shared<torch::jit::Graph>();
  std::unordered_map<Value*, Value*> copies;
  std::unordered_map<const Value*, size_t> uniques;
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* input = joint.graph->inputs()[i];
    copies[input] = graph->addInput()->setType(input->type());
  }
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start)
      break;
    auto* copy =
        graph->insertNode(graph->createClone(node, [&](Value* v) { return copies.at(v); }));
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      copies[node->output(i)] = copy->output(i);
      uniques[copy->output(i)] = node->output(i)->unique();
    }
  }

  const Program program(graph);
  ValueBytes bytes;
  const Program::Observer observer = [&](size_t index, const Program::Registers& registers) {
    const auto& instruction = program.instructions()[index];
    for (size_t k = 0; k < instruction.outputs.size(); ++k) {
      if (instruction.outputs[k] < 0)
        continue;
      const auto& value = registers[instruction.outputs[k]];
      if (instruction.node->kind() == symbols::kTapeForward && !value.isTensor()) {
        bytes[uniques.at(instruction.node->output(k))] = tape_bytes(instruction, registers);
        continue;
      }
      if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage()) {
        continue;
      }
      const auto& tensor = value.toTensor();
      bool is_view = false;
      for (const auto& operand : instruction.operands) {
        is_view =
            is_view || (!operand.is_constant && shares_storage(tensor, registers[operand.index]));
      }
      bytes[uniques.at(instruction.node->output(k))] =
          is_view ? 0 : static_cast<int64_t>(tensor.storage().nbytes());
    }
  };

  std::vector<c10::IValue> arguments = inputs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && !requires_grad[i] && arguments[i].toTensor().defined()) {
      arguments[i] = arguments[i].toTensor().clone();
    }
  }
  const RestoreGenerators restore(inputs);
  const BelowAutograd guard;
  auto registers = program.start(std::move(arguments));
  program.run(registers, 0, program.instructions().size(), nullptr, &observer);
  return bytes;
}

}  // namespace aten_recompute
