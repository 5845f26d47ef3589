#include "passes/profile/real_operands.h"

#include <ATen/Functions.h>

#include <utility>

namespace aten_recompute {

using c10::IValue;
using torch::jit::Stack;

RealOperands OperandMaker::make(const std::vector<IValue>& operands,
                                const std::vector<at::Tensor>& memory, OperandAccess access) {
  if (access.shared_zeros)
    reserve_zeros(memory);
  RealOperands real;
  for (const auto& operand : operands)
    real.values.push_back(make_value(operand, access, real.memory));
  for (size_t i = 0; i < memory.size(); ++i) {
    const auto found = real.memory.find(storages_.index_of(memory[i]));
    const void* key = found != real.memory.end() ? found->second.unsafeGetStorageImpl()
                                                 : memory[i].storage().unsafeGetStorageImpl();
    real.storages.emplace(key, static_cast<int>(i));
  }
  return real;
}

// Whether an operator can run on the tensor as it is: on a real tensor, and on a meta tensor where
// everything is on the meta device.
bool OperandMaker::has_memory(int32_t storage, const at::Tensor& tensor) const {
  return !tensor.is_meta() || storages_.device(storage).is_meta();
}

// Returns zeros in place of the tensor's storage.
c10::Storage OperandMaker::make_storage(int32_t storage, const at::Tensor& tensor, bool shared) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto device = storages_.device(storage);
  if (shared && !device.is_meta())
    return zeroed_.take(device, bytes);
  return at::zeros({bytes}, at::TensorOptions().dtype(at::kByte).device(device)).storage();
}

// Reserves the zeros that the tensors without memory need.
void OperandMaker::reserve_zeros(const std::vector<at::Tensor>& memory) {
  struct Need {
    int64_t num_storages = 0;
    int64_t bytes = 0;
  };
  std::unordered_map<at::Device, Need> needs;
  for (const auto& tensor : memory) {
    const auto storage = storages_.index_of(tensor);
    if (has_memory(storage, tensor))
      continue;
    auto& need = needs[storages_.device(storage)];
    ++need.num_storages;
    need.bytes += static_cast<int64_t>(tensor.storage().nbytes());
  }
  for (const auto& [device, need] : needs)
    zeroed_.reserve(device, need.num_storages, need.bytes);
}

at::Tensor OperandMaker::make_tensor(const at::Tensor& tensor, OperandAccess access, Memory& real) {
  const auto storage = storages_.index_of(tensor);
  const bool is_real = has_memory(storage, tensor);
  if (access.callers_tensors && is_real)
    return tensor.detach();
  auto found = real.find(storage);
  if (found == real.end()) {
    found =
        real.emplace(storage, make_storage(storage, tensor, access.shared_zeros && !is_real)).first;
  }
  auto result =
      at::empty({0}, at::TensorOptions().dtype(tensor.dtype()).device(storages_.device(storage)));
  result.set_(found->second, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  result._set_conj(tensor.is_conj());
  result._set_neg(tensor.is_neg());
  return result;
}

IValue OperandMaker::make_value(const IValue& value, OperandAccess access, Memory& real) {
  if (value.isTensor())
    return value.toTensor().defined() ? make_tensor(value.toTensor(), access, real) : value;
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const auto& element : value.toListRef())
      list.push_back(make_value(element, access, real));
    return list;
  }
  if (value.isTuple()) {
    std::vector<IValue> elements;
    for (const auto& element : value.toTupleRef().elements())
      elements.push_back(make_value(element, access, real));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isCapsule()) {
    const auto& recipe = opaque(value);
    Stack stack;
    for (const auto& operand : recipe.operands)
      stack.push_back(make_value(operand, access, real));
    program_.instructions()[recipe.instruction].run(stack);
    return stack.at(recipe.output);
  }
  return value;
}

}  // namespace aten_recompute
