// The inputs of a region, as autocast sees them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

namespace aten_recompute {

// Returns a meta tensor of the same sizes, strides and type. Throws NotDifferentiable for a sparse
// tensor.
at::Tensor on_meta(const at::Tensor& tensor);
// Returns the values with meta tensors in place of their tensors. Throws as above.
std::vector<c10::IValue> on_meta(const std::vector<c10::IValue>& values);

// Returns the device of the first tensor; the CPU if there is none.
c10::DeviceType device_of(const std::vector<c10::IValue>& inputs);

// Returns whether autocast caches the casts of this value, if the cache is on.
bool is_cached_by_autocast(const c10::IValue& input);

}  // namespace aten_recompute
