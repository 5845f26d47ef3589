#include "ir/meta_tensors.h"

#include <ATen/ops/empty.h>

namespace aten_recompute {

c10::Storage storage_without_memory(int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kMeta)).storage();
}

at::Tensor tensor_on(const at::TensorOptions& options, const c10::Storage& storage,
                     at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  auto tensor = at::empty({0}, at::TensorOptions().dtype(options.dtype()).device(storage.device()));
  tensor.set_(storage, offset, sizes, strides);
  return tensor;
}

}  // namespace aten_recompute
