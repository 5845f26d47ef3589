// Replaces tensors of a value.
#pragma once

#include <ATen/core/ivalue.h>

namespace aten_recompute {

// Returns the value with its tensor, or the tensors of its list, replaced by what `change` returns
// for them. Undefined tensors and values of other types stay as they are.
template <class Change>
c10::IValue map_tensors(const c10::IValue& value, const Change& change) {
  const auto changed = [&](const at::Tensor& tensor) {
    return tensor.defined() ? change(tensor) : tensor;
  };
  if (value.isTensor())
    return changed(value.toTensor());
  if (!value.isTensorList())
    return value;
  c10::List<at::Tensor> list;
  for (const auto& tensor : value.toTensorVector())
    list.push_back(changed(tensor));
  return list;
}

}  // namespace aten_recompute
