// Values of a profile: tensors of known sizes, strides, type and storage, but without memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// A value that is neither a tensor nor plain: a tape. What made it is run again where it is needed.
struct Opaque : torch::CustomClassHolder {
  size_t instruction = 0;
  size_t output = 0;
  std::vector<c10::IValue> operands;
  std::vector<int32_t> storages;
  std::string class_name;
};

bool is_opaque(const c10::IValue& value);
const Opaque& opaque(const c10::IValue& value);

// Is the value a defined tensor, or opaque, or a container of such?
bool has_tensor(const c10::IValue& value);

template <class Function>
void for_each_tensor(const c10::IValue& value, const Function& function) {
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

// Throws NotImplementedError naming `node`, whose result or operand the tensor is, where the tensor
// is sparse, quantized or otherwise without strides over a storage.
void check_is_plain_tensor(const at::Tensor& tensor, const torch::jit::Node* node);

// A storage that has a size and no memory, and a tensor on any storage.
c10::Storage storage_without_memory(int64_t bytes);
at::Tensor tensor_on(const at::TensorOptions& options, const c10::Storage& storage,
                     at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);

// The storages that a profile has come across, by index.
class DescribedStorages {
 public:
  // The index of the tensor's storage, a new one where it has none yet. `device`: where a described
  // storage would be. What is on a real device but was not made here, as it has no `device`, is the
  // caller's or a constant of the graph.
  int32_t index_of(const at::Tensor& tensor, bool callers = false,
                   std::optional<at::Device> device = std::nullopt);
  at::Device device_of(const at::Tensor& tensor) { return devices_[index_of(tensor)]; }

  at::Device device(int32_t storage) const { return devices_[storage]; }
  bool is_callers(int32_t storage) const { return is_callers_[storage]; }
  void set_bytes(int32_t storage, int64_t bytes) { bytes_[storage] = bytes; }

  // Per storage, as Profile wants them.
  std::vector<int64_t>& bytes() { return bytes_; }
  std::vector<bool>& are_callers() { return is_callers_; }

 private:
  std::unordered_map<const void*, int32_t> index_;  // by StorageImpl
  std::vector<int64_t> bytes_;
  std::vector<bool> is_callers_;
  std::vector<at::Device> devices_;
  std::vector<at::Tensor> keep_alive_;  // so that no address is used twice
};

}  // namespace aten_recompute
