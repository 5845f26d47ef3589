#include "passes/profile/zeroed_memory.h"

#include <ATen/Functions.h>

namespace aten_recompute {

// LibTorch's allocators align to this, because kernels are faster on whole cache lines.
constexpr int64_t kAlignment = 64;

void ZeroedMemory::reserve(at::Device device, int64_t num_storages, int64_t bytes) {
  auto& block = blocks_[device];
  block.used_bytes = 0;
  const auto needed = bytes + num_storages * kAlignment;
  if (block.memory && static_cast<int64_t>(block.memory.nbytes()) >= needed)
    return;
  block.memory = {};
  block.memory = at::zeros({needed}, at::TensorOptions().dtype(at::kByte).device(device)).storage();
}

int64_t ZeroedMemory::bytes() const {
  int64_t bytes = 0;
  for (const auto& [device, block] : blocks_)
    bytes += block.memory ? static_cast<int64_t>(block.memory.nbytes()) : 0;
  return bytes;
}

c10::Storage ZeroedMemory::take(at::Device device, int64_t bytes) {
  auto& block = blocks_.at(device);
  const auto begin = block.used_bytes;
  block.used_bytes = (begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
  TORCH_INTERNAL_ASSERT(block.used_bytes <= static_cast<int64_t>(block.memory.nbytes()));
  auto* data = static_cast<char*>(block.memory.mutable_data()) + begin;
  return {c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes), at::DataPtr(data, device)};
}

}  // namespace aten_recompute
