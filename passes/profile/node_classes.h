// What one operator costs and returns, measured once for all nodes like it.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/options.h"
#include "passes/profile/described_values.h"
#include "passes/profile/instruction_timer.h"
#include "passes/profile/joint_program.h"
#include "passes/profile/node_description.h"
#include "passes/profile/node_results.h"
#include "passes/profile/real_operands.h"
#include "passes/profile/region_profile.h"
#include "runtime/memory_watch.h"

namespace aten_recompute {

// Nodes of one class (passes/profile/node_description.h) cost the same. The first of each runs on
// real memory; the others get results of the same description. With `described`, the first runs on
// meta tensors, which stand for tensors on that device.
class NodeClasses {
 public:
  // `inputs` are the region's. All references must outlive this.
  NodeClasses(const JointProgram& program, const std::vector<c10::IValue>& inputs,
              CostModel cost_model, DescribedStorages& storages,
              std::optional<at::Device> described = {})
      : program_(program),
        cost_model_(cost_model),
        described_(described),
        storages_(storages),
        operand_maker_(program.program, storages),
        timer_(inputs) {}

  // What an instruction costs, and its results without memory.
  struct Outcome {
    NodeCost cost;
    torch::jit::Stack results;
  };

  // Returns the outcome of an instruction, which runs on zeros if it is the first of its class.
  // Throws what the operator throws.
  Outcome run(size_t index, const std::vector<c10::IValue>& operands);

  // Returns whether an instruction of the same class has run.
  bool has(size_t index, const std::vector<c10::IValue>& operands) const;

  // Returns the bytes that an instruction takes at most, with those that stay. Throws as run().
  int64_t bytes(size_t index, const std::vector<c10::IValue>& operands);

  // Returns the outcome of an instruction that costs and returns what `node_class` says.
  Outcome run_as(const NodeClass& node_class, size_t index,
                 const std::vector<c10::IValue>& operands);

  // Runs an instruction whose results elements of its operands decide, so that it stands for no
  // other. Operands that are real tensors are given to it as they are.
  Outcome run_apart(size_t index, const std::vector<c10::IValue>& operands);

  // Runs an instruction on real operands and returns what it cost and returned. `results` gets the
  // results themselves.
  NodeClass observe(size_t index, const std::vector<c10::IValue>& operands,
                    torch::jit::Stack& results);

  // Estimates an instruction without memory: sizes from a run on meta tensors, seconds from the
  // FLOP model. Throws what the operator throws on meta tensors, NotImplementedError for a tape.
  NodeClass estimate(size_t index, const std::vector<c10::IValue>& operands);

  // Returns the bytes of the operands that are kept for the next operator.
  int64_t kept_bytes() const { return operand_maker_.kept_bytes(); }
  // Gives back memory that is kept for the next operator.
  void release_memory();

  size_t size() const { return classes_.size(); }

 private:
  using NamedClass = std::pair<const std::string, NodeClass>;

  const NamedClass& class_of(size_t index, const std::vector<c10::IValue>& operands,
                             const NodeDescription& description);
  NodeClass run_class(size_t index, const std::vector<c10::IValue>& operands,
                      const std::vector<at::Tensor>& memory);
  NodeClass describe_class(size_t index, const std::vector<c10::IValue>& operands,
                           const std::vector<at::Tensor>& memory);
  Outcome instantiate(const NodeClass& node_class, const std::string& class_name, size_t index,
                      const std::vector<c10::IValue>& operands,
                      const NodeDescription& description) const;
  NodeClass measure(size_t index, const torch::jit::Stack& arguments,
                    const OperandStorages& operand_storages, torch::jit::Stack& results);
  void count(size_t index, const std::vector<c10::IValue>& operands,
             const torch::jit::Stack& results, const std::vector<at::Tensor>& memory,
             NodeClass& node_class) const;

  const JointProgram& program_;
  CostModel cost_model_;
  std::optional<at::Device> described_;
  DescribedStorages& storages_;
  OperandMaker operand_maker_;
  InstructionTimer timer_;
  MemoryWatch watch_;
  std::unordered_map<std::string, NodeClass> classes_;
};

}  // namespace aten_recompute
