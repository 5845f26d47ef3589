// Views that are made without LibTorch's dispatcher, whose way through autograd takes several times
// as long as making the view.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace aten_recompute {

// Each returns what the operator of ATen returns, and throws what that throws. Where autograd or
// something else follows the views, that operator is called.
at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes);
at::Tensor reshape(const at::Tensor& self, at::IntArrayRef sizes);
at::Tensor permute(const at::Tensor& self, at::IntArrayRef dims);
at::Tensor unsqueeze(const at::Tensor& self, int64_t dim);
at::Tensor expand(const at::Tensor& self, at::IntArrayRef sizes);
at::Tensor transpose(const at::Tensor& self, int64_t first, int64_t second);
at::Tensor slice(const at::Tensor& self, int64_t dim, std::optional<int64_t> start,
                 std::optional<int64_t> end, int64_t step);
at::Tensor narrow(const at::Tensor& self, int64_t dim, int64_t start, int64_t length);
at::Tensor select(const at::Tensor& self, int64_t dim, int64_t index);

}  // namespace aten_recompute
