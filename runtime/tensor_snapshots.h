// Undoes writes to tensors that a call makes in vain.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

namespace aten_recompute {

// Copies of what tensors hold. A tensor's whole storage is copied, once, so that tensors that
// overlap are restored together.
class TensorSnapshots {
 public:
  TensorSnapshots() = default;
  TensorSnapshots(const TensorSnapshots&) = delete;
  TensorSnapshots& operator=(const TensorSnapshots&) = delete;

  // Copies what the tensor holds, and its version. `tensor` must be defined; it may be without a
  // storage, such as a sparse one.
  void add(const at::Tensor& tensor);

  // Writes back what the tensors held when they were added. Versions are restored, too, so that a
  // backward that needs what was saved before the write still finds it unchanged.
  void restore();

 private:
  struct Memory {
    at::Tensor target;  // a storage as bytes, or a tensor that has none
    at::Tensor before;  // a copy
  };
  struct Version {
    c10::VariableVersion counter;
    uint32_t version;
  };

  std::vector<Memory> memory_;
  std::unordered_set<const void*> storages_;  // those in memory_, which keeps them alive
  std::vector<Version> versions_;
};

}  // namespace aten_recompute
