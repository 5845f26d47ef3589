// Tensors that have sizes and a storage, and no memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace aten_recompute {

// Returns a storage that has a size and no memory.
c10::Storage storage_without_memory(int64_t bytes);
// Returns a tensor on this storage.
at::Tensor tensor_on(const at::TensorOptions& options, const c10::Storage& storage,
                     at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);

}  // namespace aten_recompute
