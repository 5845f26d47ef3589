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

#include "rules/kernels/stand_in.h"

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

// Returns the view with these sizes; nullopt if there is none.
std::optional<Tensor> with_sizes(const Tensor& tensor, const DimVector& sizes) {
  const auto strides = at::detail::computeStride(tensor.sizes(), tensor.strides(), sizes);
  return strides ? std::make_optional(view_of(tensor, sizes, *strides)) : std::nullopt;
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
  if (!is_plain(self))
    return self.reshape(sizes);
  const auto inferred = at::infer_size_dv(sizes, self.numel());
  const auto result = with_sizes(self, inferred);
  return result ? *result : *with_sizes(self.contiguous(), inferred);
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
  if (!is_plain(self))
    return self.view(sizes);
  const auto result = with_sizes(self, at::infer_size_dv(sizes, self.numel()));
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

Tensor conjugate(const Tensor& self) {
  return self.is_complex() ? self.conj() : self;
}

LazyView::LazyView(Tensor tensor) {
  set(std::move(tensor));
}

LazyView::LazyView(IntArrayRef sizes, const Tensor& like)
    : options_(like.options()),
      sizes_(sizes),
      strides_(sizes.size(), 1),
      is_plain_(is_plain(like)) {
  for (size_t i = sizes.size(); i-- > 1;)
    strides_[i - 1] = strides_[i] * std::max<int64_t>(sizes[i], 1);
  if (!is_plain_)
    tensor();
}

void LazyView::set(Tensor tensor) {
  base_ = std::move(tensor);
  is_plain_ = is_plain(base_);
  is_changed_ = false;
  sizes_ = base_.sizes();
  strides_ = base_.strides();
}

const Tensor& LazyView::tensor() {
  if (!base_.defined()) {
    base_ = stand_in({sizes_.begin(), sizes_.end()}, {strides_.begin(), strides_.end()},
                     options_.dtype().toScalarType(), options_.device());
  } else if (is_changed_) {
    base_ = view_of(base_, sizes_, strides_);
  }
  is_changed_ = false;
  return base_;
}

void LazyView::permute(IntArrayRef dims) {
  if (!is_plain_)
    return set(base_.permute(dims));
  DimVector sizes(dims.size());
  DimVector strides(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    sizes[i] = sizes_[dims[i]];
    strides[i] = strides_[dims[i]];
  }
  sizes_ = std::move(sizes);
  strides_ = std::move(strides);
  is_changed_ = true;
}

void LazyView::arrange(IntArrayRef order) {
  DimVector dims(order);
  auto rank = dim();
  for (auto& each : dims) {
    if (each >= 0)
      continue;
    each = rank++;
    if (is_plain_) {
      sizes_.push_back(1);
      strides_.push_back(1);
    } else {
      set(base_.unsqueeze(-1));
    }
  }
  permute(dims);
}

void LazyView::undo_arrange(IntArrayRef order) {
  DimVector dims(order.size());
  int64_t kept = std::count_if(order.begin(), order.end(), [](int64_t dim) { return dim >= 0; });
  const auto rank = static_cast<size_t>(kept);
  for (size_t i = 0; i < order.size(); ++i)
    dims[static_cast<size_t>(order[i] >= 0 ? order[i] : kept++)] = static_cast<int64_t>(i);
  permute(dims);
  if (is_plain_) {
    sizes_.resize(rank);
    strides_.resize(rank);
    return;
  }
  while (base_.dim() > static_cast<int64_t>(rank))
    set(base_.squeeze(-1));
}

void LazyView::reshape(IntArrayRef sizes) {
  if (!is_plain_)
    return set(base_.reshape(sizes));
  auto strides = at::detail::computeStride(sizes_, strides_, DimVector(sizes));
  if (!strides) {
    set(tensor().contiguous());
    strides = at::detail::computeStride(sizes_, strides_, DimVector(sizes));
  }
  sizes_ = sizes;
  strides_ = std::move(*strides);
  is_changed_ = true;
}

}  // namespace aten_recompute
