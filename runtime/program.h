// A straight-line graph, ready to run. At run time, the forward and the backward of a region are
// two programs.
//
// LibTorch's interpreter runs a graph from its first node to its last. A region needs more: its
// backward pauses between two stages, nodes are skipped if only some gradients are needed, and a
// profile observes every value when it is made. Control flow in a program, through which no
// gradient passes, still runs on LibTorch's interpreter.
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

// Returns what the node does and where it was scripted, for messages:
// "aten::mm, computed again for the backward (blocks.3, model.py:12)".
std::string description_of(const torch::jit::Node* node);

class Program {
 public:
  // The place of an operand, and whether this is its last use. On its last use, the value is moved
  // into the operator instead of copied, so that its memory is free as soon as the operator has
  // run.
  struct Operand {
    int32_t index = 0;  // of a register or, with is_constant, of a constant
    bool is_constant = false;
    bool last_use = false;
  };

  struct Instruction {
    torch::jit::Node* node = nullptr;  // owned by the graph that the program keeps
    std::function<void(torch::jit::Stack&)> run;
    std::vector<Operand> operands;
    std::vector<int32_t> outputs;  // register of each output; -1 if it is not used
    bool mutates = false;          // writes to an argument, which must bump its version counter
    // Index of an operand. If that is None, an undefined gradient, the instruction does not run and
    // its outputs are None, too. -1: there is no such operand.
    int64_t skip_if_undefined = -1;
    // Index of the first size of its results in DataSizes, if they depend on data
    // (symbols::kDataSizes); otherwise -1.
    int64_t data_sizes = -1;
    // Forms of the operator that overwrite an operand which the program made (runtime/in_place.h).
    // They are tried in this order if this is the operand's last use.
    std::vector<InPlaceForm> in_place;
  };

  using Registers = std::vector<c10::IValue>;

  // Called after each instruction. Operands on their last use are still in `registers`.
  using Observer = std::function<void(size_t instruction, const Registers& registers)>;

  // Compiles `graph`, which has one block of nodes in execution order. The graph is kept alive and
  // not changed.
  // `is_planned` says that the memory of a run is predicted. Otherwise, small operands are not
  // overwritten, because finding out whether they may be takes longer than it saves.
  explicit Program(std::shared_ptr<torch::jit::Graph> graph, bool is_planned = true);

  // Returns registers that contain the graph's inputs. `inputs` holds one value per graph input.
  Registers start(std::vector<c10::IValue> inputs) const;

  // Sizes of results that depend on data, one entry per tensor or int; Instruction::data_sizes is
  // an index into it.
  using DataSizes = std::vector<std::vector<int64_t>>;

  // Runs the instructions [begin, end). `skip` has one entry per instruction of the program;
  // skipped instructions only free operands that are not used afterward. `data_sizes` receives the
  // sizes of results that depend on data. Throws what operators throw; a c10::Error also names the
  // node (description_of()).
  void run(Registers& registers, size_t begin, size_t end, const std::vector<bool>* skip = nullptr,
           const Observer* observer = nullptr, DataSizes* data_sizes = nullptr) const;

  // Returns output number i of the graph. It is moved out of its register if no later output needs
  // it.
  c10::IValue take_output(Registers& registers, size_t i) const;

  // Returns the number of instructions after which output i is computed; 0 for an input or a
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
  int64_t least_overwritten_elements_;
  std::vector<Instruction> instructions_;
  std::vector<c10::IValue> constants_;
  std::vector<Operand> outputs_;  // last_use: no later output reads the register
  std::vector<size_t> output_ready_;
  std::vector<int32_t> unused_inputs_;
  size_t num_registers_ = 0;
};

}  // namespace aten_recompute
