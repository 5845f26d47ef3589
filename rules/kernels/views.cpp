#include "rules/kernels/views.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace aten_recompute {
namespace {

using at::DimVector;
using at::IntArrayRef;
using at::Tensor;

// Returns whether a view of the tensor is a description of its memory and nothing else.
bool is_plain(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && (tensor.is_cpu() || tensor.is_cuda()) &&
         !tensor.is_quantized() && !tensor._is_zerotensor() && !at::isTensorSubclassLike(tensor) &&
         !at::GradMode::is_enabled() &&
         c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView);
}

Tensor view_of(const Tensor& tensor, IntArrayRef sizes, IntArrayRef strides, int64_t offset = 0) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides,
                                           tensor.storage_offset() + offset);
}

// Returns the view with these sizes, one of which may be -1; nullopt if there is none that is made
// here. Throws what at::view throws for other sizes.
std::optional<Tensor> with_sizes(const Tensor& tensor, IntArrayRef sizes) {
  if (!is_plain(tensor))
    return std::nullopt;
  const auto inferred = at::infer_size_dv(sizes, tensor.numel());
  const auto strides = at::detail::computeStride(tensor.sizes(), tensor.strides(), inferred);
  return strides ? std::make_optional(view_of(tensor, inferred, *strides)) : std::nullopt;
}

bool is_dim(int64_t dim, int64_t rank) {
  return -rank <= dim && dim < rank;
}

// A bound of a slice, which may count from the end or lie outside.
int64_t within(int64_t bound, int64_t size) {
  return std::clamp(bound < 0 ? bound + size : bound, int64_t{0}, size);
}

}  // namespace

Tensor reshape(const Tensor& self, IntArrayRef sizes) {
  const auto result = with_sizes(self, sizes);
  return result ? *result : self.reshape(sizes);
}

Tensor permute(const Tensor& self, IntArrayRef dims) {
  if (!is_plain(self) || std::ssize(dims) != self.dim())
    return self.permute(dims);
  DimVector sizes(dims.size());
  DimVector strides(dims.size());
  uint64_t seen = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!is_dim(dims[i], self.dim()))
      return self.permute(dims);
    const auto dim = at::maybe_wrap_dim(dims[i], self.dim());
    const auto bit = uint64_t{1} << (static_cast<uint64_t>(dim) & 63U);
    if (dim > 63 || (seen & bit) != 0)
      return self.permute(dims);
    seen |= bit;
    sizes[i] = self.size(dim);
    strides[i] = self.stride(dim);
  }
  return view_of(self, sizes, strides);
}

Tensor unsqueeze(const Tensor& self, int64_t dim) {
  if (!is_plain(self) || !is_dim(dim, self.dim() + 1))
    return self.unsqueeze(dim);
  dim = at::maybe_wrap_dim(dim, self.dim() + 1);
  DimVector sizes(self.sizes());
  DimVector strides(self.strides());
  const auto stride = dim < self.dim() ? self.size(dim) * self.stride(dim) : int64_t{1};
  sizes.insert(sizes.begin() + dim, 1);
  strides.insert(strides.begin() + dim, stride);
  return view_of(self, sizes, strides);
}

Tensor expand(const Tensor& self, IntArrayRef sizes) {
  if (!is_plain(self) || std::ssize(sizes) < self.dim())
    return self.expand(sizes);
  const auto geometry = at::inferExpandGeometry_dimvector(self.sizes(), self.strides(), sizes);
  return view_of(self, geometry.sizes, geometry.strides);
}

Tensor view(const Tensor& self, IntArrayRef sizes) {
  const auto result = with_sizes(self, sizes);
  return result ? *result : self.view(sizes);
}

Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start,
             std::optional<int64_t> end, int64_t step) {
  if (!is_plain(self) || !is_dim(dim, self.dim()) || step <= 0)
    return self.slice(dim, start, end, step);
  dim = at::maybe_wrap_dim(dim, self.dim());
  const auto size = self.size(dim);
  const auto first = within(start.value_or(0), size);
  const auto last = std::max(first, within(end.value_or(size), size));
  DimVector sizes(self.sizes());
  DimVector strides(self.strides());
  sizes[dim] = (last - first + step - 1) / step;
  strides[dim] *= step;
  return view_of(self, sizes, strides, first * self.stride(dim));
}

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  if (!is_plain(self) || !is_dim(dim, self.dim()) || length < 0)
    return self.narrow(dim, start, length);
  const auto wrapped = at::maybe_wrap_dim(dim, self.dim());
  const auto first = start < 0 ? start + self.size(wrapped) : start;
  if (first < 0 || first > self.size(wrapped) - length)
    return self.narrow(dim, start, length);
  DimVector sizes(self.sizes());
  sizes[wrapped] = length;
  return view_of(self, sizes, self.strides(), first * self.stride(wrapped));
}

Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  if (!is_plain(self) || !is_dim(dim, self.dim()))
    return self.select(dim, index);
  const auto wrapped = at::maybe_wrap_dim(dim, self.dim());
  if (!is_dim(index, self.size(wrapped)))
    return self.select(dim, index);
  const auto position = index < 0 ? index + self.size(wrapped) : index;
  DimVector sizes(self.sizes());
  DimVector strides(self.strides());
  sizes.erase(sizes.begin() + wrapped);
  strides.erase(strides.begin() + wrapped);
  return view_of(self, sizes, strides, position * self.stride(wrapped));
}

Tensor transpose(const Tensor& self, int64_t first, int64_t second) {
  if (!is_plain(self) || !is_dim(first, self.dim()) || !is_dim(second, self.dim()))
    return self.transpose(first, second);
  first = at::maybe_wrap_dim(first, self.dim());
  second = at::maybe_wrap_dim(second, self.dim());
  DimVector sizes(self.sizes());
  DimVector strides(self.strides());
  std::swap(sizes[first], sizes[second]);
  std::swap(strides[first], strides[second]);
  return view_of(self, sizes, strides);
}

}  // namespace aten_recompute
