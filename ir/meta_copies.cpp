#include "ir/meta_copies.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "ir/meta_tensors.h"

namespace aten_recompute {

using c10::IValue;

IValue MetaCopies::of(const IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined() ? IValue(of(value.toTensor())) : value;
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList copy(list.elementType());
    for (size_t i = 0; i < list.size(); ++i)
      copy.push_back(of(list.get(i)));
    return copy;
  }
  if (value.isTuple()) {
    std::vector<IValue> elements;
    for (const auto& element : value.toTupleRef().elements())
      elements.push_back(of(element));
    const auto type = value.type()->cast<c10::TupleType>();
    return type != nullptr && type->name()
               ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
               : c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict copy(dict.keyType(), dict.valueType());
    for (const auto& entry : dict)
      copy.insert(entry.key(), of(entry.value()));
    return copy;
  }
  return value;
}

at::Tensor MetaCopies::of(const at::Tensor& tensor) {
  auto& copy = copies_[tensor.unsafeGetTensorImpl()];
  if (copy.defined())
    return copy;
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_quantized()) {
    throw std::invalid_argument(
        c10::str("estimate and profile describe dense tensors, not one of layout ", tensor.layout(),
                 " and type ", tensor.scalar_type()));
  }
  if (!tensor.is_meta()) {
    has_several_devices_ = has_several_devices_ || (device_ && *device_ != tensor.device());
    if (!device_)
      device_ = tensor.device();
  }
  auto& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
  if (!storage)
    storage = storage_without_memory(static_cast<int64_t>(tensor.storage().nbytes()));
  copy = tensor_on(tensor.options(), storage, tensor.sizes(), tensor.strides(),
                   tensor.storage_offset());
  copy.set_requires_grad(tensor.requires_grad());
  return copy;
}

}  // namespace aten_recompute
