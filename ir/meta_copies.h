// Copies of values in which tensors have no memory.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <optional>
#include <unordered_map>

namespace aten_recompute {

// Copies values with each tensor on the meta device, of the same sizes, strides, type and
// requires_grad. What shares memory in the originals shares a storage in the copies, and a tensor
// that is met twice has one copy. The originals need to outlive this object.
class MetaCopies {
 public:
  // Returns the copy of a tensor, or of a list, tuple or dict of them; other values as they are.
  // Throws std::invalid_argument for tensors that have no strides, such as sparse ones.
  c10::IValue of(const c10::IValue& value);

  // The device of the first tensor that is not on the meta device.
  std::optional<at::Device> device() const { return device_; }
  // Whether tensors are on more than one device, the meta device not counted.
  bool has_several_devices() const { return has_several_devices_; }

 private:
  at::Tensor of(const at::Tensor& tensor);

  std::unordered_map<const void*, at::Tensor> copies_;
  std::unordered_map<const void*, c10::Storage> storages_;
  std::optional<at::Device> device_;
  bool has_several_devices_ = false;
};

}  // namespace aten_recompute
