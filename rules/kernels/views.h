// Views that are made without LibTorch's dispatcher, whose way through autograd takes several times
// as long as making the view.
#pragma once

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <iterator>
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
at::Tensor conjugate(const at::Tensor& self);  // at::conj

// A view of a tensor that changes step by step, and of which a tensor is made only when one is
// asked for. Arguments are not checked: dimensions are in range, and none is negative.
class LazyView {
 public:
  explicit LazyView(at::Tensor tensor);

  // Stands for a contiguous tensor in the dtype and on the device of `like`, of which nothing reads
  // elements.
  LazyView(at::IntArrayRef sizes, const at::Tensor& like);

  int64_t dim() const { return std::ssize(sizes_); }
  int64_t size(int64_t dim) const { return sizes_[static_cast<size_t>(dim)]; }
  at::IntArrayRef sizes() const { return sizes_; }

  const at::Tensor& tensor();

  void permute(at::IntArrayRef dims);

  // Dimension i becomes dimension `order[i]` of the view before. Where that is -1, it is a new one
  // of size 1.
  void arrange(at::IntArrayRef order);

  // Undoes arrange(): takes away the dimensions that it made.
  void undo_arrange(at::IntArrayRef order);

  // Copies the elements if there is no such view.
  void reshape(at::IntArrayRef sizes);

 private:
  void set(at::Tensor tensor);

  at::Tensor base_;  // undefined: nothing reads its elements
  at::TensorOptions options_;
  at::DimVector sizes_;
  at::DimVector strides_;
  bool is_plain_ = false;    // its views are descriptions of memory
  bool is_changed_ = false;  // since there was a tensor
};

}  // namespace aten_recompute
