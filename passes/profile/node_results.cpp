#include "passes/profile/node_results.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "runtime/meta_memory.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;

class ResultDescriber {
 public:
  ResultDescriber(const Node* node, const OperandStorages& operand_storages,
                  const MemoryWatch& watch, NodeClass& node_class)
      : node_(node), operand_storages_(operand_storages), watch_(watch), node_class_(node_class) {}

  Result describe(const IValue& value) {
    Result result;
    if (value.isTensor()) {
      result.kind = Result::Kind::kTensor;
      if (value.toTensor().defined())
        result.tensor = describe_tensor(value.toTensor());
    } else if (value.isList() && has_tensor(value)) {
      result.kind = Result::Kind::kList;
      result.element_type = value.toList().elementType();
      for (const auto& element : value.toListRef())
        result.elements.push_back(describe(element));
    } else if (value.isTuple() && has_tensor(value)) {
      result.kind = Result::Kind::kTuple;
      for (const auto& element : value.toTupleRef().elements())
        result.elements.push_back(describe(element));
    } else if (is_opaque(value)) {
      result.kind = Result::Kind::kOpaque;
    } else {
      result.plain = value;
    }
    return result;
  }

 private:
  ResultTensor describe_tensor(const at::Tensor& tensor) {
    check_is_plain_tensor(tensor, node_);
    ResultTensor described;
    described.defined = true;
    described.options = tensor.options();
    described.sizes = tensor.sizes().vec();
    described.strides = tensor.strides().vec();
    described.offset = tensor.storage_offset();
    described.is_conj = tensor.is_conj();
    described.is_neg = tensor.is_neg();
    const void* key = tensor.storage().unsafeGetStorageImpl();
    if (const auto found = operand_storages_.find(key); found != operand_storages_.end())
      described.memory.operand_storage = found->second;
    else
      described.memory.own = own_storage(tensor);
    return described;
  }

  // Returns the index of the tensor's storage among those that the node allocated.
  size_t own_storage(const at::Tensor& tensor) {
    const void* key = tensor.storage().unsafeGetStorageImpl();
    const auto position = std::find(own_.begin(), own_.end(), key);
    const auto index = static_cast<size_t>(position - own_.begin());
    if (position != own_.end())
      return index;
    own_.push_back(key);
    const auto extent = static_cast<int64_t>(tensor.storage().nbytes());
    // A meta tensor has a size, but no memory that the watch could have seen.
    node_class_.own_bytes.push_back(tensor.is_meta() ? meta_memory_of(tensor)
                                                     : watch_.bytes_at(tensor.storage().data()));
    node_class_.own_extent.push_back(extent);
    return index;
  }

  const Node* node_;
  const OperandStorages& operand_storages_;
  const MemoryWatch& watch_;
  NodeClass& node_class_;
  std::vector<const void*> own_;  // StorageImpl of each own storage
};

class ResultInstantiator {
 public:
  ResultInstantiator(const NodeClass& node_class, const NodeInstance& instance,
                     DescribedStorages& storages)
      : node_class_(node_class), instance_(instance), storages_(storages) {
    const auto device = result_device(node_class);
    for (size_t i = 0; i < node_class.own_bytes.size(); ++i) {
      const auto extent = node_class.own_extent[i];
      own_.push_back(storage_without_memory(extent));
      const auto tensor =
          tensor_on(at::TensorOptions().dtype(at::kByte), own_.back(), {extent}, {1}, 0);
      own_index_.push_back(storages_.index_of(tensor, false, device));
      storages_.set_bytes(own_index_.back(), node_class.own_bytes[i]);
    }
  }

  // `output`: index of the node's output that `result` is, or is an element of.
  IValue instantiate(const Result& result, size_t output) {
    switch (result.kind) {
      case Result::Kind::kPlain:
        return result.plain;
      case Result::Kind::kTensor:
        return instantiate_tensor(result.tensor);
      case Result::Kind::kList: {
        c10::impl::GenericList list(result.element_type);
        for (const auto& element : result.elements)
          list.push_back(instantiate(element, output));
        return list;
      }
      case Result::Kind::kTuple: {
        std::vector<IValue> elements;
        for (const auto& element : result.elements)
          elements.push_back(instantiate(element, output));
        return c10::ivalue::Tuple::create(std::move(elements));
      }
      case Result::Kind::kOpaque:
        return instantiate_opaque(result, output);
    }
    return {};
  }

 private:
  at::Device result_device(const NodeClass& node_class) const {
    for (const auto& result : node_class.results) {
      if (result.kind == Result::Kind::kTensor && result.tensor.defined)
        return result.tensor.options.device();
    }
    return device_of_operands(instance_.operands, storages_);
  }

  at::Tensor instantiate_tensor(const ResultTensor& tensor) const {
    if (!tensor.defined)
      return {};
    const auto& storage = tensor.memory.operand_storage >= 0
                              ? instance_.memory[tensor.memory.operand_storage].storage()
                              : own_[tensor.memory.own];
    auto result = tensor_on(tensor.options, storage, tensor.sizes, tensor.strides, tensor.offset);
    result._set_conj(tensor.is_conj);
    result._set_neg(tensor.is_neg);
    return result;
  }

  IValue instantiate_opaque(const Result& result, size_t output) const {
    auto holder = c10::make_intrusive<Opaque>();
    holder->instruction = instance_.instruction;
    holder->output = output;
    holder->operands = instance_.operands;
    holder->class_name = instance_.class_name;
    const auto bytes = result.opaque_bytes;
    const auto tensor = tensor_on(at::TensorOptions().dtype(at::kByte),
                                  storage_without_memory(bytes), {bytes}, {1}, 0);
    holder->storages.push_back(storages_.index_of(tensor, false, at::Device(at::kCPU)));
    const auto& held = node_class_.held;
    for (size_t i = 0; i < instance_.memory.size(); ++i) {
      const auto storage = storages_.index_of(instance_.memory[i]);
      if (!storages_.is_callers(storage) && (!held || held->operands[i]))
        holder->storages.push_back(storage);
    }
    for (size_t i = 0; held && i < held->own.size(); ++i) {
      if (held->own[i])
        holder->storages.push_back(own_index_[i]);
    }
    return IValue::make_capsule(holder);
  }

  const NodeClass& node_class_;
  const NodeInstance& instance_;
  DescribedStorages& storages_;
  std::vector<c10::Storage> own_;
  std::vector<int32_t> own_index_;  // among storages_
};

}  // namespace

bool is_in_an_operand(const Result& result) {
  return (result.kind == Result::Kind::kTensor && result.tensor.memory.operand_storage >= 0) ||
         std::any_of(result.elements.begin(), result.elements.end(), is_in_an_operand);
}

void describe_results(const Stack& results, const Node* node,
                      const OperandStorages& operand_storages, const MemoryWatch& watch,
                      NodeClass& node_class) {
  const int64_t alive = watch.alive_bytes();
  ResultDescriber describer(node, operand_storages, watch, node_class);
  for (const auto& result : results)
    node_class.results.push_back(describer.describe(result));
  int64_t described = 0;
  for (auto bytes : node_class.own_bytes)
    described += bytes;
  for (auto& result : node_class.results) {
    if (result.kind == Result::Kind::kOpaque)
      result.opaque_bytes = std::max<int64_t>(0, alive - described);
  }
}

Stack instantiate_results(const NodeClass& node_class, const NodeInstance& instance,
                          DescribedStorages& storages) {
  ResultInstantiator instantiator(node_class, instance, storages);
  Stack results;
  for (size_t i = 0; i < node_class.results.size(); ++i)
    results.push_back(instantiator.instantiate(node_class.results[i], i));
  return results;
}

at::Device device_of_operands(const std::vector<IValue>& operands, DescribedStorages& storages) {
  at::Device device = at::kCPU;
  for (const auto& operand : operands) {
    for_each_tensor(operand,
                    [&](const at::Tensor& tensor) { device = storages.device_of(tensor); });
  }
  return device;
}

}  // namespace aten_recompute
