#include "rules/shape_operands.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace aten_recompute::shapes {

at::Tensor empty(const Sizes& sizes, const at::TensorOptions& options) {
  return at::empty(sizes, options.device(at::kMeta));
}

at::Tensor scratch(int64_t bytes) {
  return at::empty({std::max<int64_t>(bytes, 0)},
                   at::TensorOptions().dtype(at::kByte).device(at::kMeta));
}

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.numel() * static_cast<int64_t>(tensor.element_size()) : 0;
}

int64_t dense_copy(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? 0 : bytes_of(tensor);
}

}  // namespace aten_recompute::shapes
