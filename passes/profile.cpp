#include "passes/profile.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_set>

#include "backend/autograd_modes.h"
#include "backend/program.h"
#include "backend/random_state.h"
#include "passes/flops.h"
#include "passes/memory_watch.h"
#include "passes/node_traits.h"
#include "passes/splice.h"
#include "passes/symbols.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Stack;
using torch::jit::Value;
using Clock = std::chrono::steady_clock;

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
  IValue plain;
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

// A value that is neither a tensor nor plain: a tape. What made it is run again where it is needed.
struct Opaque : torch::CustomClassHolder {
  size_t instruction = 0;
  size_t output = 0;
  std::vector<IValue> operands;
  std::vector<int32_t> storages;
  std::string class_name;
};

bool is_opaque(const IValue& value) {
  return value.isCapsule() || value.isObject() || value.isCustomClass();
}

// Results are known without running anything: sizes and containers.
bool looks_at_metadata_only(const Node* node) {
  static const std::unordered_set<std::string> kinds = {"aten::size",
                                                        "aten::stride",
                                                        "aten::dim",
                                                        "aten::numel",
                                                        "aten::len",
                                                        "aten::__getitem__",
                                                        "aten::is_complex",
                                                        "aten::storage_offset",
                                                        "aten::is_floating_point",
                                                        "prim::dtype",
                                                        "prim::layout",
                                                        "aten::__isnot__",
                                                        "aten::__is__",
                                                        "prim::ListConstruct",
                                                        "prim::ListUnpack",
                                                        "prim::TupleConstruct",
                                                        "prim::TupleUnpack",
                                                        "prim::TupleIndex",
                                                        "prim::unchecked_cast",
                                                        "aten::_unwrap_optional",
                                                        "prim::unchecked_unwrap_optional",
                                                        "aten_recompute::optional_list",
                                                        "aten_recompute::list_gradient",
                                                        "aten_recompute::size_of",
                                                        "aten_recompute::linear_flattens"};
  return is_marker(node) || kinds.count(node->kind().toQualString()) != 0;
}

// Traced modules compute with sizes in tensors of one number, which later sizes depend on. Such
// tensors are kept with what they hold, and the operators on them run for real.
bool computes_with_numbers(const Node* node, const std::vector<IValue>& operands) {
  static const std::unordered_set<std::string> kinds = {
      "prim::NumToTensor", "aten::Int",   "aten::Float",        "aten::Bool",      "aten::item",
      "aten::add",         "aten::sub",   "aten::rsub",         "aten::mul",       "aten::div",
      "aten::neg",         "aten::floor", "aten::floor_divide", "aten::remainder", "aten::ceil",
      "aten::eq",          "aten::ne",    "aten::lt",           "aten::le",        "aten::gt",
      "aten::ge",          "aten::to",    "aten::maximum",      "aten::minimum"};
  if (kinds.count(node->kind().toQualString()) == 0)
    return false;
  return std::all_of(operands.begin(), operands.end(), [](const IValue& operand) {
    if (!operand.isTensor())
      return !operand.isList() && !operand.isTuple();
    const auto& tensor = operand.toTensor();
    return tensor.defined() && tensor.dim() == 0 && tensor.is_cpu() && !tensor.requires_grad() &&
           at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  });
}

bool has_tensor(const IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined();
  if (value.isList()) {
    for (const auto& element : value.toListRef()) {
      if (has_tensor(element))
        return true;
    }
  }
  if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) {
      if (has_tensor(element))
        return true;
    }
  }
  return is_opaque(value);
}

template <class Function>
void for_each_tensor(const IValue& value, const Function& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined())
      function(value.toTensor());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef())
      for_each_tensor(element, function);
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements())
      for_each_tensor(element, function);
  }
}

void check_is_plain_tensor(const at::Tensor& tensor, const Node* node) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized(),
      "aten_recompute: the profile cannot describe a tensor of layout ", tensor.layout(),
      " or type ", tensor.scalar_type(), ", result or operand of ", qualified_operator_name(node),
      "; use another strategy than budget or min_cut");
}

class Profiler {
 public:
  Profiler(const JointGraph& joint, const std::vector<IValue>& inputs, CostModel cost_model)
      : joint_(joint), inputs_(inputs), cost_model_(cost_model) {
    for (const auto& input : inputs) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        if (tensor.is_meta())
          cost_model_ = CostModel::kFlops;
      });
    }
    build_program();
  }

  Profile run() {
    const auto start = Clock::now();
    const RestoreGenerators restore(inputs_);
    const BelowAutograd guard;
    MemoryWatch watch;
    watch_ = &watch;
    registers_.resize(program_->num_registers());
    for (size_t i = 0; i < joint_.num_inputs; ++i) {
      registers_[i] = inputs_[i];
      for_each_tensor(inputs_[i], [&](const at::Tensor& tensor) {
        check_is_plain_tensor(tensor, joint_.graph->param_node());
        storage_of(tensor, /*callers=*/true);
      });
      note(joint_.graph->inputs()[i], registers_[i]);
      size_t first = 0;
      while (first < i && !(inputs_[i].isTensor() && inputs_[first].isTensor() &&
                            inputs_[i].toTensor().is_same(inputs_[first].toTensor()))) {
        ++first;
      }
      profile_.same_as.push_back(first);
    }
    const auto& instructions = program_->instructions();
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (i == num_forward_)
        make_incoming_gradients();
      run_instruction(i);
    }
    if (instructions.size() == num_forward_)
      make_incoming_gradients();
    profile_.num_classes = classes_.size();
    profile_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(profile_);
  }

 private:
  // A Program of the joint graph, without the marker between its halves.
  void build_program() {
    auto graph = std::make_shared<Graph>();
    std::unordered_map<Value*, Value*> copies;
    for (auto* input : joint_.graph->inputs())
      copies[input] = graph->addInput()->setType(input->type());
    bool backward = false;
    for (auto* node : joint_.graph->nodes()) {
      if (node == joint_.backward_start) {
        backward = true;
        continue;
      }
      auto* copy =
          graph->insertNode(graph->createClone(node, [&](Value* v) { return copies.at(v); }));
      for (size_t i = 0; i < node->outputs().size(); ++i)
        copies[node->output(i)] = copy->output(i);
      if (node->kind() == c10::prim::Constant)
        continue;
      nodes_.push_back(node);
      num_forward_ += backward ? 0 : 1;
    }
    for (auto* output : joint_.graph->outputs())
      graph->registerOutput(copies.at(output));
    // An output that nobody reads has no register; here every output is looked at.
    for (auto* node : graph->nodes()) {
      if (node->kind() == c10::prim::Constant)
        continue;
      for (auto* output : node->outputs()) {
        if (!output->hasUses())
          graph->registerOutput(output);
      }
    }
    program_ = std::make_unique<Program>(graph);
  }

  void make_incoming_gradients() {
    for (size_t k = 0; k < joint_.vjp_outputs.size(); ++k) {
      auto* output = joint_.graph->outputs()[joint_.vjp_outputs[k]];
      const auto& value = value_of_.at(output);
      TORCH_CHECK_NOT_IMPLEMENTED(value.isTensor() && value.toTensor().defined(),
                                  "aten_recompute: an output that requires grad is no tensor");
      const auto& tensor = value.toTensor();
      const auto bytes = tensor.numel() * static_cast<int64_t>(tensor.element_size());
      auto gradient =
          fake(tensor.options().device(device_of(tensor)), new_memory(bytes), tensor.sizes(),
               at::infer_dense_strides(tensor.sizes(), tensor.strides()), 0);
      storage_of(gradient, false, device_of(tensor));
      const auto index = joint_.num_inputs + k;
      registers_[index] = gradient;
      note(joint_.graph->inputs()[index], registers_[index]);
    }
  }

  // ---- values without memory ----

  static c10::Storage new_memory(int64_t bytes) {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kMeta)).storage();
  }

  static at::Tensor fake(const at::TensorOptions& options, const c10::Storage& storage,
                         at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
    auto tensor =
        at::empty({0}, at::TensorOptions().dtype(options.dtype()).device(storage.device()));
    tensor.set_(storage, offset, sizes, strides);
    return tensor;
  }

  int32_t storage_of(const at::Tensor& tensor, bool callers = false,
                     std::optional<at::Device> device = std::nullopt) {
    const void* key = tensor.storage().unsafeGetStorageImpl();
    const auto found = storage_index_.find(key);
    if (found != storage_index_.end())
      return found->second;
    const auto index = static_cast<int32_t>(profile_.storage_bytes.size());
    profile_.storage_bytes.push_back(static_cast<int64_t>(tensor.storage().nbytes()));
    // What is on a real device but was not made here is a constant of the graph.
    profile_.storage_is_callers.push_back(callers || !device.has_value());
    storage_index_.emplace(key, index);
    devices_.push_back(device.value_or(tensor.device()));
    keep_alive_.push_back(tensor);
    return index;
  }

  at::Device device_of(const at::Tensor& tensor) { return devices_[storage_of(tensor)]; }

  void note(Value* value, const IValue& content) {
    value_of_[value] = content;
    if (!contains_tensor(*value->type()))
      return;
    std::vector<int32_t> storages;
    auto& bytes = profile_.tensor_bytes[value->unique()];
    for_each_tensor(content, [&](const at::Tensor& tensor) {
      bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
      const auto storage = storage_of(tensor);
      if (std::find(storages.begin(), storages.end(), storage) == storages.end())
        storages.push_back(storage);
    });
    if (content.isCapsule())
      storages = opaque(content).storages;
    profile_.storages[value->unique()] = std::move(storages);
  }

  static const Opaque& opaque(const IValue& value) {
    return static_cast<const Opaque&>(*value.toCapsule());
  }

  // ---- one instruction ----

  void run_instruction(size_t index) {
    const auto& instruction = program_->instructions()[index];
    auto* node = nodes_[index];
    std::vector<IValue> operands;
    bool tensors = false;
    for (const auto& operand : instruction.operands) {
      operands.push_back(operand.is_constant ? program_->constant(operand.index)
                                             : registers_[operand.index]);
      tensors = tensors || has_tensor(operands.back());
    }
    bool makes_tensors = false;
    for (auto* output : node->outputs())
      makes_tensors = makes_tensors || contains_tensor(*output->type());

    const bool on_fakes =
        looks_at_metadata_only(node) || (is_pure_view(node) && views_work_on(operands));
    if (on_fakes || (!tensors && !makes_tensors) || computes_with_numbers(node, operands)) {
      Stack stack = operands;
      instruction.run(stack);
      profile_.nodes[node] = {};
      finish(index, std::move(stack));
      return;
    }
    std::vector<at::Tensor> memory;  // one tensor of each storage among the operands
    const auto key = describe(index, operands, memory);
    auto found = classes_.find(key);
    if (found == classes_.end())
      found = classes_.emplace(key, run_class(index, operands, memory)).first;
    const auto& node_class = found->second;
    profile_.nodes[node] = node_class.cost;
    // Its own memory, then its results.
    std::vector<c10::Storage> own;
    const auto device = result_device(operands, node_class);
    for (size_t i = 0; i < node_class.own_bytes.size(); ++i) {
      const auto extent = node_class.own_extent[i];
      own.push_back(new_memory(extent));
      const auto storage = storage_of(
          fake(at::TensorOptions().dtype(at::kByte), own.back(), {extent}, {1}, 0), false, device);
      profile_.storage_bytes[storage] = node_class.own_bytes[i];
    }
    Stack results;
    for (size_t k = 0; k < node_class.results.size(); ++k)
      results.push_back(instantiate(node_class.results[k], memory, own, index, k, operands, key));
    finish(index, std::move(results));
  }

  // A view of nothing but meta tensors and the caller's needs no memory. (Quantized and sparse ones
  // have been refused by now.)
  static bool views_work_on(const std::vector<IValue>& operands) {
    return std::none_of(operands.begin(), operands.end(), is_opaque);
  }

  at::Device result_device(const std::vector<IValue>& operands, const NodeClass& node_class) {
    for (const auto& result : node_class.results) {
      if (result.kind == Result::Kind::kTensor && result.tensor.defined)
        return result.tensor.options.device();
    }
    at::Device device = at::kCPU;
    for (const auto& operand : operands)
      for_each_tensor(operand, [&](const at::Tensor& tensor) { device = device_of(tensor); });
    return device;
  }

  void finish(size_t index, Stack&& results) {
    const auto& instruction = program_->instructions()[index];
    auto* node = nodes_[index];
    for (size_t k = 0; k < instruction.outputs.size(); ++k) {
      // Memory that came into being on the way (a constant made into a tensor) is on its own
      // device.
      for_each_tensor(results[k], [&](const at::Tensor& tensor) {
        check_is_plain_tensor(tensor, node);
        storage_of(tensor, false, tensor.device());
      });
      if (instruction.outputs[k] >= 0)
        registers_[instruction.outputs[k]] = results[k];
      note(node->output(k), results[k]);
    }
  }

  // ---- classes ----

  std::string describe(size_t index, const std::vector<IValue>& operands,
                       std::vector<at::Tensor>& memory) {
    auto* node = nodes_[index];
    std::ostringstream key;
    key << qualified_operator_name(node) << '/' << node->outputs().size();
    if (!node->blocks().empty())
      key << '@' << index;
    if (node->hasAttribute(c10::attr::Subgraph))
      key << node->g(c10::attr::Subgraph)->toString(/*print_source_locations=*/false);
    if (node->hasAttribute(symbols::kRequiresGrad)) {
      for (auto flag : node->is(symbols::kRequiresGrad))
        key << flag;
    }
    for (const auto& operand : operands)
      describe(key << ';', operand, memory);
    return std::move(key).str();
  }

  void describe(std::ostream& key, const IValue& value, std::vector<at::Tensor>& memory) {
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      if (!tensor.defined()) {
        key << "undefined";
        return;
      }
      const auto storage = storage_of(tensor);
      size_t position = 0;
      while (position < memory.size() && storage_of(memory[position]) != storage)
        ++position;
      if (position == memory.size())
        memory.push_back(tensor);
      key << tensor.scalar_type() << devices_[storage] << tensor.sizes() << tensor.strides() << '+'
          << tensor.storage_offset() << '#' << position << '/' << tensor.storage().nbytes();
    } else if (value.isList()) {
      key << '[';
      for (const auto& element : value.toListRef())
        describe(key << ',', element, memory);
      key << ']';
    } else if (value.isTuple()) {
      key << '(';
      for (const auto& element : value.toTupleRef().elements())
        describe(key << ',', element, memory);
      key << ')';
    } else if (value.isCapsule()) {
      key << "opaque " << opaque(value).class_name;
      for (const auto& operand : opaque(value).operands) {
        for_each_tensor(operand, [&](const at::Tensor& tensor) {
          std::ostringstream unused;
          describe(unused, tensor, memory);
        });
      }
    } else if (value.isGenerator() || value.isObject()) {
      key << value.tagKind();
    } else {
      key << value;
    }
  }

  // Real tensors in place of described ones. `real` maps storages to memory.
  IValue materialise(const IValue& value, bool may_read_callers,
                     std::unordered_map<int32_t, c10::Storage>& real) {
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      if (!tensor.defined())
        return value;
      const auto storage = storage_of(tensor);
      const bool is_real = !tensor.is_meta() || devices_[storage].is_meta();
      if (is_real && may_read_callers)
        return tensor.detach();
      auto found = real.find(storage);
      if (found == real.end()) {
        const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
        auto memory =
            at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(devices_[storage]));
        found = real.emplace(storage, memory.storage()).first;
      }
      auto result =
          at::empty({0}, at::TensorOptions().dtype(tensor.dtype()).device(devices_[storage]));
      result.set_(found->second, tensor.storage_offset(), tensor.sizes(), tensor.strides());
      return result;
    }
    if (value.isList()) {
      const auto elements = value.toListRef();
      c10::impl::GenericList list(value.toList().elementType());
      for (const auto& element : elements)
        list.push_back(materialise(element, may_read_callers, real));
      return list;
    }
    if (value.isTuple()) {
      std::vector<IValue> elements;
      for (const auto& element : value.toTupleRef().elements())
        elements.push_back(materialise(element, may_read_callers, real));
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    if (value.isCapsule()) {
      const auto& recipe = opaque(value);
      Stack stack;
      for (const auto& operand : recipe.operands)
        stack.push_back(materialise(operand, may_read_callers, real));
      program_->instructions()[recipe.instruction].run(stack);
      return stack.at(recipe.output);
    }
    return value;
  }

  NodeClass run_class(size_t index, const std::vector<IValue>& operands,
                      const std::vector<at::Tensor>& memory) {
    const auto& instruction = program_->instructions()[index];
    auto* node = nodes_[index];
    // Operators on a tape may write to what they read, as those with running statistics do; and for
    // a tape among the operands they run again.
    const bool runs_a_tape = node->kind() == symbols::kTapeForward ||
                             std::any_of(operands.begin(), operands.end(), is_opaque);
    const bool may_read_callers =
        !instruction.mutates && !updates_hidden_state(node) && !runs_a_tape;
    std::unordered_map<int32_t, c10::Storage> real;
    NodeClass node_class;
    Stack arguments;
    for (const auto& operand : operands)
      arguments.push_back(materialise(operand, may_read_callers, real));
    std::unordered_map<const void*, int> operand_storages;
    for (size_t i = 0; i < memory.size(); ++i) {
      const auto storage = storage_of(memory[i]);
      const auto found = real.find(storage);
      const void* key = found != real.end() ? found->second.unsafeGetStorageImpl()
                                            : memory[i].storage().unsafeGetStorageImpl();
      operand_storages.emplace(key, static_cast<int>(i));
    }

    watch_->reset();
    Stack stack = arguments;
    double seconds = timed([&] { instruction.run(stack); });
    const int64_t alive = watch_->alive_bytes();
    node_class.cost.workspace_bytes = std::max<int64_t>(0, watch_->peak_bytes() - alive);
    if (draws_random_numbers(node))
      node_class.cost.replay_bytes = random_state_bytes(arguments);

    int64_t described = 0;
    std::vector<const void*> own;
    for (const auto& result : stack)
      node_class.results.push_back(
          describe_result(result, node, operand_storages, own, node_class));
    for (auto bytes : node_class.own_bytes)
      described += bytes;
    for (auto& result : node_class.results) {
      if (result.kind == Result::Kind::kOpaque)
        result.opaque_bytes = std::max<int64_t>(0, alive - described);
    }
    node_class.cost.flops = count_flops(node, operands, stack);
    if (cost_model_ == CostModel::kFlops) {
      double moved = static_cast<double>(described);
      for (const auto& tensor : memory)
        moved += static_cast<double>(tensor.nbytes());
      node_class.cost.seconds = model_seconds(node_class.cost.flops, moved);
      return node_class;
    }
    // The first run also loads code and fills caches. Short ones are run again, until they settle.
    stack.clear();
    const int repeats = seconds < 2e-3 ? 4 : seconds < 50e-3 ? 2 : 1;
    for (int i = 0; i < repeats; ++i) {
      stack = arguments;
      seconds = std::min(seconds, timed([&] { instruction.run(stack); }));
      stack.clear();
    }
    node_class.cost.seconds = seconds;
    return node_class;
  }

  template <class Function>
  double timed(const Function& function) {
    synchronize();
    const auto start = Clock::now();
    function();
    synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void synchronize() const {
    for (const auto& input : inputs_) {
      if (!input.isTensor() || !input.toTensor().defined())
        continue;
      const auto device = input.toTensor().device();
      if (device.is_cpu() || device.is_meta())
        continue;
      c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
      return;
    }
  }

  Result describe_result(const IValue& value, const Node* node,
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
                                             : watch_->bytes_at(tensor.storage().data()));
          node_class.own_extent.push_back(static_cast<int64_t>(tensor.storage().nbytes()));
        }
      }
    } else if (value.isList() && has_tensor(value)) {
      result.kind = Result::Kind::kList;
      result.element_type = value.toList().elementType();
      for (const auto& element : value.toListRef())
        result.elements.push_back(
            describe_result(element, node, operand_storages, own, node_class));
    } else if (value.isTuple() && has_tensor(value)) {
      result.kind = Result::Kind::kTuple;
      for (const auto& element : value.toTupleRef().elements())
        result.elements.push_back(
            describe_result(element, node, operand_storages, own, node_class));
    } else if (is_opaque(value)) {
      result.kind = Result::Kind::kOpaque;
    } else {
      result.plain = value;
    }
    return result;
  }

  IValue instantiate(const Result& result, const std::vector<at::Tensor>& memory,
                     const std::vector<c10::Storage>& own, size_t index, size_t output,
                     const std::vector<IValue>& operands, const std::string& class_name) {
    switch (result.kind) {
      case Result::Kind::kPlain:
        return result.plain;
      case Result::Kind::kTensor: {
        const auto& tensor = result.tensor;
        if (!tensor.defined)
          return at::Tensor();
        const auto& storage = tensor.memory.operand_storage >= 0
                                  ? memory[tensor.memory.operand_storage].storage()
                                  : own[tensor.memory.own];
        return fake(tensor.options, storage, tensor.sizes, tensor.strides, tensor.offset);
      }
      case Result::Kind::kList: {
        c10::impl::GenericList list(result.element_type);
        for (const auto& element : result.elements)
          list.push_back(instantiate(element, memory, own, index, output, operands, class_name));
        return list;
      }
      case Result::Kind::kTuple: {
        std::vector<IValue> elements;
        for (const auto& element : result.elements)
          elements.push_back(
              instantiate(element, memory, own, index, output, operands, class_name));
        return c10::ivalue::Tuple::create(std::move(elements));
      }
      case Result::Kind::kOpaque: {
        auto holder = c10::make_intrusive<Opaque>();
        holder->instruction = index;
        holder->output = output;
        holder->operands = operands;
        holder->class_name = class_name;
        // What autograd keeps of the operands is its own affair: all of them, to be safe.
        const auto bytes = result.opaque_bytes;
        const auto storage =
            fake(at::TensorOptions().dtype(at::kByte), new_memory(bytes), {bytes}, {1}, 0);
        holder->storages.push_back(storage_of(storage, false, at::Device(at::kCPU)));
        for (const auto& tensor : memory) {
          const auto held = storage_of(tensor);
          if (!profile_.storage_is_callers[held])
            holder->storages.push_back(held);
        }
        return IValue::make_capsule(holder);
      }
    }
    return {};
  }

  const JointGraph& joint_;
  const std::vector<IValue>& inputs_;
  CostModel cost_model_;
  std::unique_ptr<Program> program_;
  std::vector<Node*> nodes_;  // per instruction, in the joint graph
  size_t num_forward_ = 0;
  MemoryWatch* watch_ = nullptr;

  Profile profile_;
  std::vector<IValue> registers_;
  std::unordered_map<Value*, IValue> value_of_;
  std::unordered_map<const void*, int32_t> storage_index_;  // StorageImpl -> index
  std::vector<at::Device> devices_;                         // per storage: where it would be
  std::vector<at::Tensor> keep_alive_;                      // so that no address is used twice
  std::unordered_map<std::string, NodeClass> classes_;
};

}  // namespace

Profile profile(const JointGraph& joint, const std::vector<IValue>& inputs, CostModel cost_model) {
  return Profiler(joint, inputs, cost_model).run();
}

}  // namespace aten_recompute
