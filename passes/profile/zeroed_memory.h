// Memory full of zeros, for operands of what a profile runs.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <unordered_map>

namespace aten_recompute {

// Zeroing operands takes as long as many an operator that reads them. What has only been read is
// full of zeros still, and serves the next operator. Never more memory than one operator needs.
class ZeroedMemory {
 public:
  // Room for storages of so many bytes in all, one after another; those handed out before are void.
  void reserve(at::Device device, int64_t num_storages, int64_t bytes);

  // One of them. Nobody may write to it.
  c10::Storage take(at::Device device, int64_t bytes);

 private:
  struct Block {
    c10::Storage memory;
    int64_t used_bytes = 0;
  };
  std::unordered_map<at::Device, Block> blocks_;
};

}  // namespace aten_recompute
