#include "backend/estimate/meta_module.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "backend/method/share_tensors.h"
#include "ir/meta_tensors.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Module;

class MetaCopies {
 public:
  IValue of(const IValue& value) {
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

  // The device of the first tensor that is not on the meta device.
  std::optional<at::Device> device() const { return device_; }

 private:
  at::Tensor of(const at::Tensor& tensor) {
    auto& copy = copies_[tensor.unsafeGetTensorImpl()];
    if (copy.defined())
      return copy;
    if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_quantized()) {
      throw std::invalid_argument(
          c10::str("estimate and profile describe dense tensors, not one of layout ",
                   tensor.layout(), " and type ", tensor.scalar_type()));
    }
    if (!device_ && !tensor.is_meta())
      device_ = tensor.device();
    auto& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage)
      storage = storage_without_memory(static_cast<int64_t>(tensor.storage().nbytes()));
    copy = tensor_on(tensor.options(), storage, tensor.sizes(), tensor.strides(),
                     tensor.storage_offset());
    copy.set_requires_grad(tensor.requires_grad());
    return copy;
  }

  std::unordered_map<const void*, at::Tensor> copies_;
  std::unordered_map<const void*, c10::Storage> storages_;
  std::optional<at::Device> device_;
};

}  // namespace

MetaCall on_meta(const Module& given, const std::vector<IValue>& inputs,
                 std::optional<at::Device> device) {
  const at::NoGradGuard no_grad;
  MetaCall call{plain_clone(given), {}, at::kCPU};
  MetaCopies copies;
  for (const auto& module : call.module.modules()) {
    const auto object = module._ivalue();
    for (size_t i = 0; i < module.type()->numAttributes(); ++i) {
      if (!object->getSlot(i).isModule())
        object->setSlot(i, copies.of(object->getSlot(i)));
    }
  }
  for (const auto& input : inputs)
    call.inputs.push_back(copies.of(input));
  call.device = device.value_or(copies.device().value_or(at::kCPU));
  return call;
}

}  // namespace aten_recompute
