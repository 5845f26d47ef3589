// Values without memory: tensors of which sizes, strides, type and storage are known.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/meta_tensors.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// A value that cannot be described: a tape. The instruction that made it runs again, on memory for
// `operands`, where a measured operator reads it.
struct Opaque : torch::CustomClassHolder {
  size_t instruction = 0;
  size_t output = 0;
  std::vector<c10::IValue> operands;
  std::vector<int32_t> storages;
  std::string class_name;
};

bool is_opaque(const c10::IValue& value);
const Opaque& opaque(const c10::IValue& value);

// Whether the value is a defined tensor, or opaque, or a list or tuple that contains such a value.
bool has_tensor(const c10::IValue& value);

// Calls `function` with each defined tensor in the value.
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

// Throws NotImplementedError where the tensor is sparse, quantized or otherwise without strides
// over a storage. The message names `node`, whose result or operand the tensor is.
void check_is_plain_tensor(const at::Tensor& tensor, const torch::jit::Node* node);

// The storages that a profile has come across; each has an index.
class DescribedStorages {
 public:
  // Returns the index of the tensor's storage. If the storage is new, `callers` says whether it
  // belongs to the caller, and `device` where it lies or, without memory, would lie. Without
  // `device` it counts as the caller's: it is real memory that no operator of the walk has made.
  int32_t index_of(const at::Tensor& tensor, bool callers = false,
                   std::optional<at::Device> device = std::nullopt);
  at::Device device_of(const at::Tensor& tensor) { return devices_[index_of(tensor)]; }

  at::Device device(int32_t storage) const { return devices_[storage]; }
  bool is_callers(int32_t storage) const { return is_callers_[storage]; }
  void set_bytes(int32_t storage, int64_t bytes) { bytes_[storage] = bytes; }

  // Per storage, for Profile.
  std::vector<int64_t>& bytes() { return bytes_; }
  std::vector<bool>& are_callers() { return is_callers_; }

 private:
  std::unordered_map<const void*, int32_t> index_;  // by StorageImpl
  std::vector<int64_t> bytes_;
  std::vector<bool> is_callers_;
  std::vector<at::Device> devices_;
  std::vector<at::Tensor> keep_alive_;  // no address may be used twice
};

}  // namespace aten_recompute
