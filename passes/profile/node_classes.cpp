#include "passes/profile/node_classes.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <chrono>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/profile/flops.h"
#include "rules/recomputability.h"
#include "runtime/random_state.h"

namespace aten_recompute {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;
using Clock = std::chrono::steady_clock;

namespace {

bool is_in_an_operand(const Result& result) {
  return (result.kind == Result::Kind::kTensor && result.tensor.memory.operand_storage >= 0) ||
         std::any_of(result.elements.begin(), result.elements.end(), is_in_an_operand);
}

// Read and written, for the FLOP model.
double bytes_moved(const std::vector<at::Tensor>& memory, const NodeClass& node_class) {
  double moved = 0.0;
  for (auto bytes : node_class.own_bytes)
    moved += static_cast<double>(bytes);
  for (const auto& tensor : memory)
    moved += static_cast<double>(tensor.nbytes());
  return moved;
}

// The value with meta tensors in the place of real ones; `stand_ins` by the StorageImpl of these.
IValue to_meta(const IValue& value, std::unordered_map<const void*, c10::Storage>& stand_ins) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined() || tensor.is_meta())
      return value;
    auto& storage = stand_ins[tensor.storage().unsafeGetStorageImpl()];
    if (!storage)
      storage = storage_without_memory(static_cast<int64_t>(tensor.storage().nbytes()));
    return tensor_on(tensor.options(), storage, tensor.sizes(), tensor.strides(),
                     tensor.storage_offset());
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const auto& element : value.toListRef())
      list.push_back(to_meta(element, stand_ins));
    return list;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!is_opaque(value), "a tape has no meta form");
  return value;
}

void put_on(Result& result, at::Device device) {
  if (result.kind == Result::Kind::kTensor && result.tensor.defined)
    result.tensor.options = result.tensor.options.device(device);
  for (auto& element : result.elements)
    put_on(element, device);
}

}  // namespace

const std::pair<const std::string, NodeClass>& NodeClasses::class_of(
    size_t index, const std::vector<IValue>& operands, const NodeDescription& description) {
  if (const auto found = classes_.find(description.key); found != classes_.end())
    return *found;
  const auto with_places = description.key + description.places;
  if (const auto found = classes_.find(with_places); found != classes_.end())
    return *found;
  auto node_class = run_class(index, operands, description.memory);
  const bool depends_on_places =
      std::any_of(node_class.results.begin(), node_class.results.end(), is_in_an_operand);
  return *classes_.emplace(depends_on_places ? with_places : description.key, std::move(node_class))
              .first;
}

NodeClasses::Outcome NodeClasses::run(size_t index, const std::vector<IValue>& operands) {
  const auto description = describe_node(nodes_[index], index, operands, storages_);
  const auto& [key, node_class] = class_of(index, operands, description);
  return instantiate_all(node_class, key, index, operands, description);
}

NodeClasses::Outcome NodeClasses::run_as(const NodeClass& node_class, size_t index,
                                         const std::vector<IValue>& operands) {
  return instantiate_all(node_class, "instruction " + std::to_string(index), index, operands,
                         describe_node(nodes_[index], index, operands, storages_));
}

NodeClasses::Outcome NodeClasses::instantiate_all(const NodeClass& node_class,
                                                  const std::string& class_name, size_t index,
                                                  const std::vector<IValue>& operands,
                                                  const NodeDescription& description) {
  // Its own memory, then its results.
  std::vector<c10::Storage> own;
  const auto device = result_device(operands, node_class);
  for (size_t i = 0; i < node_class.own_bytes.size(); ++i) {
    const auto extent = node_class.own_extent[i];
    own.push_back(storage_without_memory(extent));
    const auto storage = storages_.index_of(
        tensor_on(at::TensorOptions().dtype(at::kByte), own.back(), {extent}, {1}, 0), false,
        device);
    storages_.set_bytes(storage, node_class.own_bytes[i]);
  }
  Outcome outcome{node_class.cost, {}};
  const Instance instance{index, operands, description.memory, own, class_name};
  for (size_t k = 0; k < node_class.results.size(); ++k)
    outcome.results.push_back(instantiate(node_class.results[k], instance, k));
  return outcome;
}

at::Device NodeClasses::result_device(const std::vector<IValue>& operands,
                                      const NodeClass& node_class) {
  for (const auto& result : node_class.results) {
    if (result.kind == Result::Kind::kTensor && result.tensor.defined)
      return result.tensor.options.device();
  }
  return device_of_operands(operands);
}

at::Device NodeClasses::device_of_operands(const std::vector<IValue>& operands) {
  at::Device device = at::kCPU;
  for (const auto& operand : operands)
    for_each_tensor(operand,
                    [&](const at::Tensor& tensor) { device = storages_.device_of(tensor); });
  return device;
}

// Is the tensor itself what an operator can run on: real, or a stand-in that was given as one?
bool NodeClasses::has_memory(int32_t storage, const at::Tensor& tensor) const {
  return !tensor.is_meta() || storages_.device(storage).is_meta();
}

// What stands for the tensor's storage. `shared`: it is left as it was, and may be another's
// afterwards.
c10::Storage NodeClasses::zeros(int32_t storage, const at::Tensor& tensor, bool shared) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto device = storages_.device(storage);
  if (shared && !device.is_meta())
    return zeroed_.take(device, bytes);
  return at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(device)).storage();
}

// Room for what materialise() will ask for of these.
void NodeClasses::reserve_zeros(const Memory& memory) {
  std::unordered_map<at::Device, std::pair<int64_t, int64_t>> needed;
  for (const auto& tensor : memory) {
    const auto storage = storages_.index_of(tensor);
    if (has_memory(storage, tensor))
      continue;
    auto& [num_storages, bytes] = needed[storages_.device(storage)];
    ++num_storages;
    bytes += static_cast<int64_t>(tensor.storage().nbytes());
  }
  for (const auto& [device, need] : needed)
    zeroed_.reserve(device, need.first, need.second);
}

// Real tensors in place of described ones. `real` maps storages to memory.
IValue NodeClasses::materialise(const IValue& value, Access access, RealMemory& real) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined())
      return value;
    const auto storage = storages_.index_of(tensor);
    const bool is_real = has_memory(storage, tensor);
    if (access.callers && is_real)
      return tensor.detach();
    auto found = real.find(storage);
    if (found == real.end()) {
      found = real.emplace(storage, zeros(storage, tensor, access.shared && !is_real)).first;
    }
    auto result =
        at::empty({0}, at::TensorOptions().dtype(tensor.dtype()).device(storages_.device(storage)));
    result.set_(found->second, tensor.storage_offset(), tensor.sizes(), tensor.strides());
    return result;
  }
  if (value.isList()) {
    const auto elements = value.toListRef();
    c10::impl::GenericList list(value.toList().elementType());
    for (const auto& element : elements)
      list.push_back(materialise(element, access, real));
    return list;
  }
  if (value.isTuple()) {
    std::vector<IValue> elements;
    for (const auto& element : value.toTupleRef().elements())
      elements.push_back(materialise(element, access, real));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isCapsule()) {
    const auto& recipe = opaque(value);
    Stack stack;
    for (const auto& operand : recipe.operands)
      stack.push_back(materialise(operand, access, real));
    program_.instructions()[recipe.instruction].run(stack);
    return stack.at(recipe.output);
  }
  return value;
}

// Of the first input that is on one: what runs there is waited for. Looked for once, as a region
// can have a thousand inputs.
std::optional<at::Device> NodeClasses::device_to_wait_for() const {
  for (const auto& input : inputs_) {
    if (!input.isTensor() || !input.toTensor().defined())
      continue;
    const auto device = input.toTensor().device();
    if (!device.is_cpu() && !device.is_meta())
      return device;
  }
  return std::nullopt;
}

void NodeClasses::synchronize() const {
  if (waits_for_)
    c10::impl::VirtualGuardImpl(waits_for_->type()).synchronizeDevice(waits_for_->index());
}

double NodeClasses::time_of(const Program::Instruction& instruction, Stack& stack) const {
  synchronize();
  const auto start = Clock::now();
  instruction.run(stack);
  synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

NodeClass NodeClasses::run_class(size_t index, const std::vector<IValue>& operands,
                                 const Memory& memory) {
  const auto& instruction = program_.instructions()[index];
  auto* node = nodes_[index];
  // Operators on a tape may write to what they read, as those with running statistics do; and for
  // a tape among the operands they run again.
  const bool runs_a_tape = node->kind() == symbols::kTapeForward ||
                           std::any_of(operands.begin(), operands.end(), is_opaque);
  const bool only_reads = !instruction.mutates && !updates_hidden_state(node) && !runs_a_tape;
  // Statistics of zeros are zeros.
  const Access access{only_reads, only_reads || updates_statistics_only(node)};
  if (access.shared)
    reserve_zeros(memory);
  RealMemory real;
  NodeClass node_class;
  Stack arguments;
  for (const auto& operand : operands)
    arguments.push_back(materialise(operand, access, real));
  std::unordered_map<const void*, int> operand_storages;
  for (size_t i = 0; i < memory.size(); ++i) {
    const auto storage = storages_.index_of(memory[i]);
    const auto found = real.find(storage);
    const void* key = found != real.end() ? found->second.unsafeGetStorageImpl()
                                          : memory[i].storage().unsafeGetStorageImpl();
    operand_storages.emplace(key, static_cast<int>(i));
  }

  watch_.reset();
  Stack stack = arguments;
  const double seconds = time_of(instruction, stack);
  node_class.cost.workspace_bytes =
      std::max<int64_t>(0, watch_.peak_bytes() - watch_.alive_bytes());
  if (draws_random_numbers(node))
    node_class.cost.replay_bytes = random_state_bytes(arguments);

  describe_results(stack, node, operand_storages, node_class);
  node_class.cost.flops = count_flops(node, operands, stack);
  if (cost_model_ == CostModel::kFlops) {
    node_class.cost.seconds = model_seconds(node_class.cost.flops, bytes_moved(memory, node_class));
    return node_class;
  }
  stack.clear();
  node_class.cost.seconds = settled_seconds(instruction, node, arguments, seconds);
  return node_class;
}

void NodeClasses::describe_results(const Stack& results, const Node* node,
                                   const std::unordered_map<const void*, int>& operand_storages,
                                   NodeClass& node_class) {
  const int64_t alive = watch_.alive_bytes();
  std::vector<const void*> own;
  for (const auto& result : results)
    node_class.results.push_back(describe_result(result, node, operand_storages, own, node_class));
  int64_t described = 0;
  for (auto bytes : node_class.own_bytes)
    described += bytes;
  for (auto& result : node_class.results) {
    if (result.kind == Result::Kind::kOpaque)
      result.opaque_bytes = std::max<int64_t>(0, alive - described);
  }
}

NodeClass NodeClasses::observe(size_t index, const std::vector<IValue>& operands, Stack& results) {
  const auto& instruction = program_.instructions()[index];
  const auto* node = nodes_[index];
  Memory memory;
  std::unordered_map<const void*, int> operand_storages;
  for (const auto& operand : operands) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      if (tensor.has_storage() &&
          operand_storages
              .emplace(tensor.storage().unsafeGetStorageImpl(), static_cast<int>(memory.size()))
              .second)
        memory.push_back(tensor);
    });
  }
  NodeClass node_class;
  results = operands;
  watch_.reset();
  node_class.cost.seconds = time_of(instruction, results);
  node_class.cost.workspace_bytes =
      std::max<int64_t>(0, watch_.peak_bytes() - watch_.alive_bytes());
  if (draws_random_numbers(node))
    node_class.cost.replay_bytes = random_state_bytes(operands);
  describe_results(results, node, operand_storages, node_class);
  node_class.cost.flops = count_flops(node, operands, results);
  if (cost_model_ == CostModel::kFlops)
    node_class.cost.seconds = model_seconds(node_class.cost.flops, bytes_moved(memory, node_class));
  return node_class;
}

NodeClass NodeClasses::price(size_t index, const std::vector<IValue>& operands) {
  const auto description = describe_node(nodes_[index], index, operands, storages_);
  std::unordered_map<const void*, int> operand_storages;
  std::unordered_map<const void*, c10::Storage> stand_ins;
  std::vector<IValue> without_memory;
  for (const auto& operand : operands)
    without_memory.push_back(to_meta(operand, stand_ins));
  for (size_t i = 0; i < description.memory.size(); ++i) {
    const void* key = description.memory[i].storage().unsafeGetStorageImpl();
    const auto found = stand_ins.find(key);
    operand_storages.emplace(found == stand_ins.end() ? key : found->second.unsafeGetStorageImpl(),
                             static_cast<int>(i));
  }
  Stack results = without_memory;
  program_.instructions()[index].run(results);
  NodeClass node_class;
  watch_.reset();
  describe_results(results, nodes_[index], operand_storages, node_class);
  for (auto& result : node_class.results)
    put_on(result, device_of_operands(operands));
  node_class.cost.flops = count_flops(nodes_[index], operands, results);
  node_class.cost.seconds =
      model_seconds(node_class.cost.flops, bytes_moved(description.memory, node_class));
  return node_class;
}

// What a run takes of which the first took `first_seconds`. That one also loads code and fills
// caches: from one half longer to, in a tenth of the short ones, twice as long and more. The second
// of those of 0.2 ms and more is within a tenth of the fastest of five. More runs would cost more
// than they are worth: a user waits for them.
double NodeClasses::settled_seconds(const Program::Instruction& instruction, const Node* node,
                                    const Stack& arguments, double first_seconds) {
  const bool is_short = first_seconds < 2e-4;
  const auto name = qualified_operator_name(node) + (is_short ? ", short" : ", long");
  if (warm_up_.is_known(name))
    return warm_up_.without(name, first_seconds);
  auto seconds = first_seconds;
  for (int repeats = is_short ? 2 : 1; repeats > 0; --repeats) {
    auto stack = arguments;
    seconds = std::min(seconds, time_of(instruction, stack));
  }
  warm_up_.learn(name, first_seconds, seconds);
  return seconds;
}

Result NodeClasses::describe_result(const IValue& value, const Node* node,
                                    const std::unordered_map<const void*, int>& operand_storages,
                                    std::vector<const void*>& own, NodeClass& node_class) {
  Result result;
  if (value.isTensor()) {
    result.kind = Result::Kind::kTensor;
    const auto& tensor = value.toTensor();
    if (!tensor.defined())
      return result;
    check_is_plain_tensor(tensor, node);
    auto& described = result.tensor;
    described.defined = true;
    described.options = tensor.options();
    described.sizes = tensor.sizes().vec();
    described.strides = tensor.strides().vec();
    described.offset = tensor.storage_offset();
    const void* key = tensor.storage().unsafeGetStorageImpl();
    if (const auto found = operand_storages.find(key); found != operand_storages.end()) {
      described.memory.operand_storage = found->second;
    } else {
      const auto position = std::find(own.begin(), own.end(), key);
      described.memory.own = static_cast<size_t>(position - own.begin());
      if (position == own.end()) {
        own.push_back(key);
        // A stand-in for a tensor has a size and no memory.
        node_class.own_bytes.push_back(tensor.is_meta()
                                           ? static_cast<int64_t>(tensor.storage().nbytes())
                                           : watch_.bytes_at(tensor.storage().data()));
        node_class.own_extent.push_back(static_cast<int64_t>(tensor.storage().nbytes()));
      }
    }
  } else if (value.isList() && has_tensor(value)) {
    result.kind = Result::Kind::kList;
    result.element_type = value.toList().elementType();
    for (const auto& element : value.toListRef())
      result.elements.push_back(describe_result(element, node, operand_storages, own, node_class));
  } else if (value.isTuple() && has_tensor(value)) {
    result.kind = Result::Kind::kTuple;
    for (const auto& element : value.toTupleRef().elements())
      result.elements.push_back(describe_result(element, node, operand_storages, own, node_class));
  } else if (is_opaque(value)) {
    result.kind = Result::Kind::kOpaque;
  } else {
    result.plain = value;
  }
  return result;
}

IValue NodeClasses::instantiate(const Result& result, const Instance& instance, size_t output) {
  switch (result.kind) {
    case Result::Kind::kPlain:
      return result.plain;
    case Result::Kind::kTensor: {
      const auto& tensor = result.tensor;
      if (!tensor.defined)
        return at::Tensor();
      const auto& storage = tensor.memory.operand_storage >= 0
                                ? instance.memory[tensor.memory.operand_storage].storage()
                                : instance.own[tensor.memory.own];
      return tensor_on(tensor.options, storage, tensor.sizes, tensor.strides, tensor.offset);
    }
    case Result::Kind::kList: {
      c10::impl::GenericList list(result.element_type);
      for (const auto& element : result.elements)
        list.push_back(instantiate(element, instance, output));
      return list;
    }
    case Result::Kind::kTuple: {
      std::vector<IValue> elements;
      for (const auto& element : result.elements)
        elements.push_back(instantiate(element, instance, output));
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    case Result::Kind::kOpaque:
      return instantiate_opaque(result, instance, output);
  }
  return {};
}

IValue NodeClasses::instantiate_opaque(const Result& result, const Instance& instance,
                                       size_t output) {
  auto holder = c10::make_intrusive<Opaque>();
  holder->instruction = instance.instruction;
  holder->output = output;
  holder->operands = instance.operands;
  holder->class_name = instance.class_name;
  // What autograd keeps of the operands is its own affair: all of them, to be safe.
  const auto bytes = result.opaque_bytes;
  const auto storage = tensor_on(at::TensorOptions().dtype(at::kByte),
                                 storage_without_memory(bytes), {bytes}, {1}, 0);
  holder->storages.push_back(storages_.index_of(storage, false, at::Device(at::kCPU)));
  for (const auto& tensor : instance.memory) {
    const auto held = storages_.index_of(tensor);
    if (!storages_.is_callers(held))
      holder->storages.push_back(held);
  }
  return IValue::make_capsule(holder);
}

}  // namespace aten_recompute
