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
#include "passes/profile/node_description.h"
#include "passes/profile/profile.h"
#include "passes/profile/warm_up.h"
#include "passes/profile/zeroed_memory.h"
#include "runtime/memory_watch.h"
#include "runtime/program.h"

namespace aten_recompute {

// Where a result of a node lies: in the memory of an operand, or in its own.
struct ResultMemory {
  int operand_storage = -1;  // index into the storages of the operands, in order of appearance
  size_t own = 0;            // index among the node's own storages
};

struct ResultTensor {
  bool defined = false;
  at::TensorOptions options;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  ResultMemory memory;
};

// What a node of a class returns: plain values as they were, tensors by description.
struct Result {
  enum class Kind { kPlain, kTensor, kList, kTuple, kOpaque };
  Kind kind = Kind::kPlain;
  c10::IValue plain;
  ResultTensor tensor;
  c10::TypePtr element_type;
  std::vector<Result> elements;
  int64_t opaque_bytes = 0;
};

struct NodeClass {
  NodeCost cost;
  std::vector<Result> results;
  // Of each own storage: what it takes, and how far its tensors may reach into it.
  std::vector<int64_t> own_bytes;
  std::vector<int64_t> own_extent;
};

// Nodes of one class (passes/profile/node_description.h) cost the same. The first of each runs, on
// real memory; the others get results of the same description.
class NodeClasses {
 public:
  // `nodes[i]` is instruction i of `program`, `inputs` are the region's. All outlive this.
  NodeClasses(const Program& program, const std::vector<torch::jit::Node*>& nodes,
              const std::vector<c10::IValue>& inputs, CostModel cost_model,
              DescribedStorages& storages)
      : program_(program),
        nodes_(nodes),
        inputs_(inputs),
        cost_model_(cost_model),
        storages_(storages),
        waits_for_(device_to_wait_for()) {}

  struct Outcome {
    NodeCost cost;
    torch::jit::Stack results;
  };
  Outcome run(size_t index, const std::vector<c10::IValue>& operands);

  // Runs instruction `index` on real operands and describes what came out; `results` get what it
  // returned.
  NodeClass observe(size_t index, const std::vector<c10::IValue>& operands,
                    torch::jit::Stack& results);
  // As run(), by a description from elsewhere.
  Outcome run_as(const NodeClass& node_class, size_t index,
                 const std::vector<c10::IValue>& operands);
  // Of a node that runs on no memory at all: sizes from meta tensors, time from the FLOP model.
  NodeClass price(size_t index, const std::vector<c10::IValue>& operands);

  size_t size() const { return classes_.size(); }

 private:
  using Memory = std::vector<at::Tensor>;  // as NodeDescription::memory
  // Of described storages: what stands for them while a node runs.
  using RealMemory = std::unordered_map<int32_t, c10::Storage>;

  // What a node that runs is given: the callers' tensors themselves, or zeros in their place; for
  // described ones, memory that others were given before.
  struct Access {
    bool callers;
    bool shared;
  };

  struct Instance {
    size_t instruction;
    const std::vector<c10::IValue>& operands;
    const Memory& memory;
    const std::vector<c10::Storage>& own;
    const std::string& class_name;
  };

  // With its name.
  const std::pair<const std::string, NodeClass>& class_of(size_t index,
                                                          const std::vector<c10::IValue>& operands,
                                                          const NodeDescription& description);
  bool has_memory(int32_t storage, const at::Tensor& tensor) const;
  c10::Storage zeros(int32_t storage, const at::Tensor& tensor, bool shared);
  void reserve_zeros(const Memory& memory);
  c10::IValue materialise(const c10::IValue& value, Access access, RealMemory& real);
  Outcome instantiate_all(const NodeClass& node_class, const std::string& class_name, size_t index,
                          const std::vector<c10::IValue>& operands,
                          const NodeDescription& description);
  void describe_results(const torch::jit::Stack& results, const torch::jit::Node* node,
                        const std::unordered_map<const void*, int>& operand_storages,
                        NodeClass& node_class);
  NodeClass run_class(size_t index, const std::vector<c10::IValue>& operands, const Memory& memory);
  Result describe_result(const c10::IValue& value, const torch::jit::Node* node,
                         const std::unordered_map<const void*, int>& operand_storages,
                         std::vector<const void*>& own, NodeClass& node_class);
  c10::IValue instantiate(const Result& result, const Instance& instance, size_t output);
  c10::IValue instantiate_opaque(const Result& result, const Instance& instance, size_t output);
  at::Device result_device(const std::vector<c10::IValue>& operands, const NodeClass& node_class);
  at::Device device_of_operands(const std::vector<c10::IValue>& operands);
  std::optional<at::Device> device_to_wait_for() const;
  void synchronize() const;
  double settled_seconds(const Program::Instruction& instruction, const torch::jit::Node* node,
                         const torch::jit::Stack& arguments, double first_seconds);
  double time_of(const Program::Instruction& instruction, torch::jit::Stack& stack) const;

  const Program& program_;
  const std::vector<torch::jit::Node*>& nodes_;
  const std::vector<c10::IValue>& inputs_;
  CostModel cost_model_;
  DescribedStorages& storages_;
  std::optional<at::Device> waits_for_;
  MemoryWatch watch_;
  ZeroedMemory zeroed_;
  WarmUp warm_up_;
  std::unordered_map<std::string, NodeClass> classes_;
};

}  // namespace aten_recompute
