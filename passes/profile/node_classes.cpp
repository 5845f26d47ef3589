#include "passes/profile/node_classes.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <string>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/profile/flops.h"
#include "passes/profile/run_on_meta.h"
#include "rules/meta_mode.h"
#include "rules/recomputability.h"
#include "runtime/arena/scratch_memory.h"
#include "runtime/meta_memory.h"
#include "runtime/random_state.h"

namespace aten_recompute {

using c10::IValue;
using torch::jit::Stack;

namespace {

// Returns the bytes that a node reads and writes, for the FLOP model.
double bytes_moved(const std::vector<at::Tensor>& memory, const NodeClass& node_class) {
  double moved = 0.0;
  for (auto bytes : node_class.own_bytes)
    moved += static_cast<double>(bytes);
  for (const auto& tensor : memory)
    moved += static_cast<double>(tensor.nbytes());
  return moved;
}

using StandIns = std::unordered_map<const void*, c10::Storage>;

// Returns the value with meta tensors in place of real ones. `stand_ins` gets the storages of
// these, by the address of the StorageImpl that they stand for. A tape is made again by the
// instruction of `program` that made it; without a program, it is an error.
IValue to_meta(const IValue& value, StandIns& stand_ins, const JointProgram* program = nullptr) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined() || tensor.is_meta())
      return value;
    auto& storage = stand_ins[tensor.storage().unsafeGetStorageImpl()];
    if (!storage)
      storage = storage_without_memory(static_cast<int64_t>(tensor.storage().nbytes()));
    auto meta = tensor_on(tensor.options(), storage, tensor.sizes(), tensor.strides(),
                          tensor.storage_offset());
    meta._set_conj(tensor.is_conj());
    meta._set_neg(tensor.is_neg());
    return meta;
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const auto& element : value.toListRef())
      list.push_back(to_meta(element, stand_ins, program));
    return list;
  }
  const bool can_be_made_again = program != nullptr && value.isCapsule();
  TORCH_CHECK_NOT_IMPLEMENTED(!is_opaque(value) || can_be_made_again, "a tape has no meta form");
  if (can_be_made_again) {
    const auto& recipe = opaque(value);
    Stack stack;
    for (const auto& operand : recipe.operands)
      stack.push_back(to_meta(operand, stand_ins, program));
    run_on_meta(program->program.instructions()[recipe.instruction],
                program->nodes[recipe.instruction], stack);
    return stack.at(recipe.output);
  }
  return value;
}

// Returns the index of each storage in `memory`, or of what stands for it.
OperandStorages storages_of(const std::vector<at::Tensor>& memory, const StandIns& stand_ins) {
  OperandStorages storages;
  for (size_t i = 0; i < memory.size(); ++i) {
    const void* key = memory[i].storage().unsafeGetStorageImpl();
    const auto found = stand_ins.find(key);
    storages.emplace(found == stand_ins.end() ? key : found->second.unsafeGetStorageImpl(),
                     static_cast<int>(i));
  }
  return storages;
}

void set_device(Result& result, at::Device device) {
  if (result.kind == Result::Kind::kTensor && result.tensor.defined)
    result.tensor.options = result.tensor.options.device(device);
  for (auto& element : result.elements)
    set_device(element, device);
}

// Appends one tensor of each storage of the operands to `memory`; returns their indices.
OperandStorages collect_storages(const std::vector<IValue>& operands,
                                 std::vector<at::Tensor>& memory) {
  OperandStorages storages;
  for (const auto& operand : operands) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      if (tensor.has_storage() &&
          storages.emplace(tensor.storage().unsafeGetStorageImpl(), static_cast<int>(memory.size()))
              .second) {
        memory.push_back(tensor);
      }
    });
  }
  return storages;
}

// Finds out what a tape keeps alive: while its results exist, the tensors or storages that it holds
// have more references than they had before the run, or than the results make.
class References {
 public:
  explicit References(const Stack& arguments) {
    for (const auto& argument : arguments) {
      for_each_tensor(argument, [&](const at::Tensor& tensor) {
        if (tensor.has_storage())
          before_.push_back({tensor, tensor.storage().use_count()});
      });
    }
    for (auto& each : before_)
      each.of_tensor = each.tensor.use_count();
  }

  NodeClass::Held held(const Stack& results, const OperandStorages& operand_storages,
                       size_t num_own) const {
    NodeClass::Held held{std::vector<bool>(operand_storages.size(), false),
                         std::vector<bool>(num_own, false)};
    for (const auto& each : before_) {
      const auto found = operand_storages.find(each.tensor.storage().unsafeGetStorageImpl());
      if (found != operand_storages.end() && (each.tensor.use_count() > each.of_tensor ||
                                              each.tensor.storage().use_count() > each.of_storage))
        held.operands[static_cast<size_t>(found->second)] = true;
    }
    // In the order in which describe_results() numbers own storages.
    std::vector<std::pair<const c10::StorageImpl*, size_t>> own;
    for (const auto& result : results) {
      for_each_tensor(result, [&](const at::Tensor& tensor) {
        const auto* storage = tensor.storage().unsafeGetStorageImpl();
        if (operand_storages.count(storage) != 0)
          return;
        const auto found = std::find_if(own.begin(), own.end(),
                                        [&](const auto& each) { return each.first == storage; });
        if (found == own.end())
          own.emplace_back(storage, tensor.storage().use_count() - 1);
        else
          --found->second;
      });
    }
    for (size_t i = 0; i < std::min(num_own, own.size()); ++i)
      held.own[i] = own[i].second > 0;
    return held;
  }

 private:
  struct Before {
    at::Tensor tensor;
    size_t of_storage = 0;
    size_t of_tensor = 0;
  };
  std::vector<Before> before_;
};

OperandAccess access_of(const Program::Instruction& instruction, const torch::jit::Node* node,
                        const std::vector<IValue>& operands) {
  // Operators on a tape may write to what they read, as those with running statistics do. An
  // operand that is a tape makes them run again.
  const bool runs_a_tape = node->kind() == symbols::kTapeForward ||
                           std::any_of(operands.begin(), operands.end(), is_opaque);
  const bool only_reads = !instruction.mutates && !updates_hidden_state(node) && !runs_a_tape;
  // The statistics of zeros are zeros.
  return {only_reads, only_reads || updates_statistics_only(node)};
}

}  // namespace

NodeClasses::Outcome NodeClasses::run(size_t index, const std::vector<IValue>& operands) {
  const auto description = describe_node(program_.nodes[index], index, operands, storages_);
  const auto& [name, node_class] = class_of(index, operands, description);
  return instantiate(node_class, name, index, operands, description);
}

int64_t NodeClasses::bytes(size_t index, const std::vector<IValue>& operands) {
  const auto description = describe_node(program_.nodes[index], index, operands, storages_);
  const auto& node_class = class_of(index, operands, description).second;
  auto bytes = node_class.cost.workspace_bytes;
  for (auto own : node_class.own_bytes)
    bytes += own;
  for (const auto& result : node_class.results)
    bytes += result.opaque_bytes;
  return bytes;
}

NodeClasses::Outcome NodeClasses::run_as(const NodeClass& node_class, size_t index,
                                         const std::vector<IValue>& operands) {
  return instantiate(node_class, "instruction " + std::to_string(index), index, operands,
                     describe_node(program_.nodes[index], index, operands, storages_));
}

NodeClasses::Outcome NodeClasses::run_apart(size_t index, const std::vector<IValue>& operands) {
  const auto description = describe_node(program_.nodes[index], index, operands, storages_);
  return instantiate(run_class(index, operands, description.memory),
                     "instruction " + std::to_string(index), index, operands, description);
}

NodeClass NodeClasses::observe(size_t index, const std::vector<IValue>& operands, Stack& results) {
  std::vector<at::Tensor> memory;
  const auto operand_storages = collect_storages(operands, memory);
  auto node_class = measure(index, operands, operand_storages, results);
  count(index, operands, results, memory, node_class);
  return node_class;
}

bool NodeClasses::has(size_t index, const std::vector<IValue>& operands) const {
  const auto description = describe_node(program_.nodes[index], index, operands, storages_);
  return classes_.count(description.key) != 0 ||
         classes_.count(description.key + description.places) != 0;
}

void NodeClasses::release_memory() {
  operand_maker_.release_zeros();
  ScratchMemory::release_free_blocks();
}

NodeClass NodeClasses::estimate(size_t index, const std::vector<IValue>& operands) {
  const auto* node = program_.nodes[index];
  const auto description = describe_node(node, index, operands, storages_);
  StandIns stand_ins;
  Stack results;
  for (const auto& operand : operands)
    results.push_back(to_meta(operand, stand_ins));
  const auto operand_storages = storages_of(description.memory, stand_ins);
  NodeClass node_class;
  {
    const MetaMode mode;
    watch_.reset();
    run_on_meta(program_.program.instructions()[index], node, results);
    node_class.cost.workspace_bytes =
        std::max<int64_t>(0, watch_.peak_bytes() - watch_.alive_bytes());
  }
  watch_.reset();
  describe_results(results, node, operand_storages, watch_, node_class);
  for (auto& result : node_class.results)
    set_device(result, device_of_operands(operands, storages_));
  auto& cost = node_class.cost;
  cost.flops = count_flops(node, operands, results);
  cost.seconds = model_seconds(cost.flops, bytes_moved(description.memory, node_class));
  return node_class;
}

// Returns the class of an instruction under its name, and runs the instruction if it is the first.
// The name contains the places of the operands only where a result is a view of one of them.
const NodeClasses::NamedClass& NodeClasses::class_of(size_t index,
                                                     const std::vector<IValue>& operands,
                                                     const NodeDescription& description) {
  if (const auto found = classes_.find(description.key); found != classes_.end())
    return *found;
  const auto with_places = description.key + description.places;
  if (const auto found = classes_.find(with_places); found != classes_.end())
    return *found;
  auto node_class = described_ ? describe_class(index, operands, description.memory)
                               : run_class(index, operands, description.memory);
  const bool depends_on_places =
      std::any_of(node_class.results.begin(), node_class.results.end(), is_in_an_operand);
  const auto& key = depends_on_places ? with_places : description.key;
  // The key of a node with blocks is of this program alone.
  if (!described_ && cost_model_ == CostModel::kMeasured && program_.nodes[index]->blocks().empty())
    node_class.cost.measured_class = std::hash<std::string>()(key);
  return *classes_.emplace(key, std::move(node_class)).first;
}

NodeClass NodeClasses::run_class(size_t index, const std::vector<IValue>& operands,
                                 const std::vector<at::Tensor>& memory) {
  const auto& instruction = program_.program.instructions()[index];
  const auto* node = program_.nodes[index];
  const auto real = operand_maker_.make(operands, memory, access_of(instruction, node, operands));
  Stack results;
  auto node_class = measure(index, real.values, real.storages, results);
  count(index, operands, results, memory, node_class);
  if (cost_model_ == CostModel::kFlops)
    return node_class;
  results.clear();
  auto& seconds = node_class.cost.seconds;
  seconds = timer_.settled_seconds(instruction, node, real.values, seconds);
  return node_class;
}

NodeClass NodeClasses::describe_class(size_t index, const std::vector<IValue>& operands,
                                      const std::vector<at::Tensor>& memory) {
  const auto* node = program_.nodes[index];
  StandIns stand_ins;
  Stack arguments;
  for (const auto& operand : operands)
    arguments.push_back(to_meta(operand, stand_ins, &program_));
  const auto operand_storages = storages_of(memory, stand_ins);
  const bool has_tape = node->kind() == symbols::kTapeForward && !has_shape_function(node);
  const References references(has_tape ? arguments : Stack());
  const MetaMode mode;
  Stack results = arguments;
  watch_.reset();
  run_on_meta(program_.program.instructions()[index], node, results);
  NodeClass node_class;
  auto& cost = node_class.cost;
  cost.workspace_bytes = std::max<int64_t>(0, watch_.peak_bytes() - watch_.alive_bytes());
  if (draws_random_numbers(node))
    cost.replay_bytes = described_->is_cpu() ? random_state_bytes({}) : 0;
  describe_results(results, node, operand_storages, watch_, node_class);
  if (has_tape)
    node_class.held = references.held(results, operand_storages, node_class.own_bytes.size());
  else if (node->kind() == symbols::kTapeForward)  // what autograd will keep is not known
    node_class.held = {std::vector<bool>(memory.size(), true),
                       std::vector<bool>(node_class.own_bytes.size(), true)};
  for (auto& result : node_class.results)
    set_device(result, *described_);
  count(index, operands, results, memory, node_class);
  return node_class;
}

NodeClasses::Outcome NodeClasses::instantiate(const NodeClass& node_class,
                                              const std::string& class_name, size_t index,
                                              const std::vector<IValue>& operands,
                                              const NodeDescription& description) const {
  const NodeInstance instance{index, operands, description.memory, class_name};
  return {node_class.cost, instantiate_results(node_class, instance, storages_)};
}

// Runs an instruction once on `arguments`. Returns its results' description and what the run showed
// of its cost.
NodeClass NodeClasses::measure(size_t index, const Stack& arguments,
                               const OperandStorages& operand_storages, Stack& results) {
  const auto* node = program_.nodes[index];
  NodeClass node_class;
  auto& cost = node_class.cost;
  const bool has_tape = node->kind() == symbols::kTapeForward;
  const References references(has_tape ? arguments : Stack());
  results = arguments;
  watch_.reset();
  cost.seconds = timer_.run(program_.program.instructions()[index], results);
  cost.workspace_bytes = std::max<int64_t>(0, watch_.peak_bytes() - watch_.alive_bytes());
  if (draws_random_numbers(node))
    cost.replay_bytes = random_state_bytes(arguments);
  describe_results(results, node, operand_storages, watch_, node_class);
  if (has_tape)
    node_class.held = references.held(results, operand_storages, node_class.own_bytes.size());
  return node_class;
}

// Counts the operations of an instruction. Under the FLOP model they decide its seconds.
void NodeClasses::count(size_t index, const std::vector<IValue>& operands, const Stack& results,
                        const std::vector<at::Tensor>& memory, NodeClass& node_class) const {
  auto& cost = node_class.cost;
  cost.flops = count_flops(program_.nodes[index], operands, results);
  if (cost_model_ == CostModel::kFlops)
    cost.seconds = model_seconds(cost.flops, bytes_moved(memory, node_class));
}

}  // namespace aten_recompute
