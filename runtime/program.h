// A straight-line graph, ready to run: what a region's forward and backward are at run time.
//
// LibTorch's interpreter runs a graph from its first node to its last. A region needs more: its
// backward stops between two stages and goes on later, nodes nobody needs are left out when only
// some gradients were asked for, and a profile looks at every value as it is made. A Program is the
// smallest runner that can do so. Control flow inside it (which no gradient passes through) is
// still run by LibTorch's interpreter.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/in_place.h"

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// What a node of a program does and where it was scripted, for messages:
// "aten::mm, computed again for the backward (blocks.3, model.py:12)".
std::string description_of(const torch::jit::Node* node);

class Program {
 public:
  // Where an operand lies, and whether this use is the last, so that the value moves into the
  // operator instead of being copied and its memory is free as soon as the operator has run.
  struct Operand {
    int32_t index = 0;
    bool is_constant = false;
    bool last_use = false;
  };

  struct Instruction {
    torch::jit::Node* node = nullptr;  // owned by the graph that the program keeps
    std::function<void(torch::jit::Stack&)> run;
    std::vector<Operand> operands;
    std::vector<int32_t> outputs;  // register of each output; -1: nobody reads it
    bool mutates = false;          // writes to an argument: version counters must see it
    // Where this operand is None, an undefined gradient, so are the outputs; -1: there is none
    // such.
    int64_t skip_if_undefined = -1;
    // Place of the sizes of its results among those that data decide (symbols::kDataSizes); -1:
    // data decide none.
    int64_t data_sizes = -1;
    // The operator computing into an operand that the program made (runtime/in_place.h), to be
    // tried in this order where the operand dies.
    std::vector<InPlaceForm> in_place;
  };

  using Registers = std::vector<c10::IValue>;

  // Called after each instruction, before operands that die there are gone from `registers`.
  using Observer = std::function<void(size_t instruction, const Registers& registers)>;

  // `graph` has one block of nodes in execution order. It is kept alive and not changed.
  explicit Program(std::shared_ptr<torch::jit::Graph> graph);

  // Registers with the graph's inputs in place. `inputs` holds one value per graph input.
  Registers start(std::vector<c10::IValue> inputs) const;

  // Sizes of the results of instructions with `data_sizes`, at their places.
  using DataSizes = std::vector<std::vector<int64_t>>;

  // Runs instructions [begin, end). `skip`, when given, has one entry per instruction of the
  // program; skipped instructions only release what dies at them.
  void run(Registers& registers, size_t begin, size_t end, const std::vector<bool>* skip = nullptr,
           const Observer* observer = nullptr, DataSizes* data_sizes = nullptr) const;

  // The i-th output of the graph. Moves it out of its register where no later output needs it.
  c10::IValue take_output(Registers& registers, size_t i) const;

  // Index of the first instruction by which output i is computed, plus one; 0 for an input or a
  // constant.
  size_t output_ready_after(size_t i) const { return output_ready_[i]; }

  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<Operand>& outputs() const { return outputs_; }
  const c10::IValue& constant(int32_t index) const { return constants_[index]; }
  size_t num_registers() const { return num_registers_; }
  const std::shared_ptr<torch::jit::Graph>& graph() const { return graph_; }

 private:
  static bool is_undefined(const Instruction& instruction, const Registers& registers);

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<Instruction> instructions_;
  std::vector<c10::IValue> constants_;
  std::vector<Operand> outputs_;  // last_use: this is the last output that reads the register
  std::vector<size_t> output_ready_;
  std::vector<int32_t> unused_inputs_;
  size_t num_registers_ = 0;
};

}  // namespace aten_recompute
