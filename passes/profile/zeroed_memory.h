// Memory full of zeros, for the operands of the operators that a profile runs.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <unordered_map>

namespace aten_recompute {

// Zeroing operands can take as long as the operator that reads them. Memory that was only read is
// still full of zeros and serves the next operator. It is never more than one operator needs.
class ZeroedMemory {
 public:
  // Makes room for `num_storages` storages of `bytes` bytes altogether. Storages that were taken
  // before must not be used any more.
  void reserve(at::Device device, int64_t num_storages, int64_t bytes);

  // Returns the bytes that are held now.
  int64_t bytes() const;

  // Gives the memory back. Storages that were taken must not be used any more.
  void release() { blocks_.clear(); }

  // Returns one of these storages. Nobody may write to it.
  c10::Storage take(at::Device device, int64_t bytes);

 private:
  struct Block {
    c10::Storage memory;
    int64_t used_bytes = 0;
  };
  std::unordered_map<at::Device, Block> blocks_;
};

}  // namespace aten_recompute
