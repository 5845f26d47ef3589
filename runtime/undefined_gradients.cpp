#include "runtime/undefined_gradients.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "ir/symbols.h"
#include "runtime/program.h"

namespace aten_recompute {
namespace {

// Returns whether the node accepts None for an undefined gradient.
bool tolerates_undefined(const torch::jit::Node* node) {
  return node->kind() == symbols::kAccumulate || node->kind() == symbols::kAccumulateList ||
         node->kind() == symbols::kTapeBackward || node->kind() == c10::prim::ListConstruct;
}

// Which registers of a backward the incoming gradients reach.
class GradientReach {
 public:
  GradientReach(const Program& backward, const std::vector<size_t>& gradients,
                const std::vector<bool>& defined)
      : reached_(backward.num_registers(), false), alive_(backward.num_registers(), false) {
    for (size_t k = 0; k < gradients.size(); ++k) {
      reached_[gradients[k]] = true;
      alive_[gradients[k]] = defined[k];
    }
    const auto& instructions = backward.instructions();
    for (size_t i = 0; i < instructions.size(); ++i)
      follow(i, instructions[i]);
  }

  // Returns whether a gradient reaches the register, but no defined one.
  bool is_dead(int32_t index) const { return reached_[index] && !alive_[index]; }
  bool is_dead(const Program::Operand& operand) const {
    return !operand.is_constant && is_dead(operand.index);
  }

  // Returns whether the instruction runs where the operand is None, an undefined gradient.
  bool takes_none(size_t number, const Program::Instruction& instruction, size_t operand) const {
    const auto found = stretches_.find(number);
    if (found == stretches_.end())
      return tolerates_undefined(instruction.node);
    const auto& gradients = instruction.node->is(kGradientOperands);
    const auto place = std::find(gradients.begin(), gradients.end(), static_cast<int64_t>(operand));
    return place != gradients.end() &&
           !found->second.zeros[static_cast<size_t>(place - gradients.begin())];
  }

 private:
  void follow(size_t number, const Program::Instruction& instruction) {
    bool any_reached = false;
    bool any_alive = false;
    for (const auto& operand : instruction.operands) {
      if (operand.is_constant)
        continue;
      any_reached = any_reached || reached_[operand.index];
      any_alive = any_alive || alive_[operand.index];
    }
    const auto* stretch = any_alive ? stretch_without_gradients(number, instruction) : nullptr;
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      if (instruction.outputs[i] < 0)
        continue;
      reached_[instruction.outputs[i]] = any_reached;
      alive_[instruction.outputs[i]] = any_alive && (stretch == nullptr || !stretch->undefined[i]);
    }
  }

  // Looks into a stretch whose gradients are not all defined: each of its results depends on some
  // of them. Returns nullptr for any other instruction.
  const UndefinedGradients* stretch_without_gradients(size_t number,
                                                      const Program::Instruction& instruction) {
    if (!instruction.node->hasAttribute(kGradientOperands))
      return nullptr;
    std::vector<size_t> gradients;
    std::vector<bool> defined;
    for (const auto operand : instruction.node->is(kGradientOperands)) {
      gradients.push_back(static_cast<size_t>(operand));
      defined.push_back(!is_dead(instruction.operands[gradients.back()]));
    }
    if (std::find(defined.begin(), defined.end(), false) == defined.end())
      return nullptr;
    const Program program(instruction.node->g(c10::attr::Subgraph));
    return &(stretches_[number] = find_undefined_gradients(program, gradients, defined));
  }

  std::vector<bool> reached_;                       // some gradient reaches the register
  std::vector<bool> alive_;                         // a defined one does
  std::map<size_t, UndefinedGradients> stretches_;  // by the number of the instruction
};

// Fills in `skip`. Returns for each register whether it is dead but an operator that runs needs it,
// so that it has to be computed from zeros. An instruction is also skipped where only skipped ones
// read its results, as for a recomputation.
std::vector<bool> skip_dead_instructions(const Program& backward, const GradientReach& reach,
                                         std::vector<bool>& skip) {
  const auto& instructions = backward.instructions();
  std::vector<bool> required(backward.num_registers(), false);
  std::vector<bool> read(backward.num_registers(), false);
  for (const auto& output : backward.outputs()) {
    if (!output.is_constant && !reach.is_dead(output))
      read[output.index] = true;
  }
  skip.assign(instructions.size(), false);
  for (size_t i = instructions.size(); i-- > 0;) {
    const auto& instruction = instructions[i];
    bool has_readers = false;  // in the whole program
    bool dead = true;
    bool needed = false;
    bool is_read = false;
    for (auto output : instruction.outputs) {
      if (output < 0)
        continue;
      has_readers = true;
      dead = dead && reach.is_dead(output);
      needed = needed || required[output];
      is_read = is_read || read[output];
    }
    skip[i] = has_readers && ((dead && !needed) || (!is_read && !instruction.mutates));
    if (skip[i])
      continue;
    for (size_t k = 0; k < instruction.operands.size(); ++k) {
      const auto& operand = instruction.operands[k];
      if (operand.is_constant)
        continue;
      read[operand.index] = true;
      if (reach.is_dead(operand) && (needed || !reach.takes_none(i, instruction, k)))
        required[operand.index] = true;
    }
  }
  return required;
}

}  // namespace

UndefinedGradients find_undefined_gradients(const Program& backward,
                                            const std::vector<size_t>& gradients,
                                            const std::vector<bool>& defined) {
  const GradientReach reach(backward, gradients, defined);
  UndefinedGradients result;
  const auto required = skip_dead_instructions(backward, reach, result.skip);
  for (size_t k = 0; k < defined.size(); ++k)
    result.zeros.push_back(!defined[k] && required[gradients[k]]);
  for (const auto& output : backward.outputs())
    result.undefined.push_back(reach.is_dead(output));
  return result;
}

}  // namespace aten_recompute
