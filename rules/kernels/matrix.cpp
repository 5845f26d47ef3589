// matmul and linear, composed of other operators as in ATen, with the gradients that autograd
// computes for this composition. The composition depends on strides and on which arguments require
// grad; values inside a region do not carry the latter, so it is passed as arguments.
#include "rules/kernels/matrix.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <optional>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/views.h"

namespace aten_recompute {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Sizes = std::vector<int64_t>;

bool is_column_major(IntArrayRef sizes, IntArrayRef strides) {
  return strides[0] == 1 && strides[1] == sizes[0];
}

Tensor scaled(const Tensor& tensor, const at::Scalar& factor) {
  return factor.equal(1) ? tensor : tensor * factor;
}

}  // namespace

// From FunctionsManual.cpp, mm_mat1_backward and mm_mat2_backward. The gradient has the layout of
// the argument.
Tensor mm_grad_self(const Tensor& grad, const Tensor& mat2, IntArrayRef sizes, IntArrayRef strides,
                    at::Scalar alpha) {
  const auto product = is_column_major(sizes, strides)
                           ? aten_recompute::transpose(
                                 conjugate(mat2).mm(aten_recompute::transpose(grad, 0, 1)), 0, 1)
                           : grad.mm(conjugate(aten_recompute::transpose(mat2, 0, 1)));
  return scaled(product, alpha.conj());
}

Tensor mm_grad_mat2(const Tensor& grad, const Tensor& mat1, IntArrayRef sizes, IntArrayRef strides,
                    at::Scalar alpha) {
  const auto product = is_column_major(sizes, strides)
                           ? aten_recompute::transpose(
                                 aten_recompute::transpose(grad, 0, 1).mm(conjugate(mat1)), 0, 1)
                           : conjugate(aten_recompute::transpose(mat1, 0, 1)).mm(grad);
  return scaled(product, alpha.conj());
}

namespace {

// The two operands of a matmul. In a backward, the tensor of one of them is not available.
struct Operands {
  Sizes self_sizes, self_strides;
  Sizes other_sizes, other_strides;
  bool self_requires_grad, other_requires_grad;

  size_t self_dim() const { return self_sizes.size(); }
  size_t other_dim() const { return other_sizes.size(); }
};

Sizes transposed(Sizes sizes) {
  if (sizes.size() >= 2)
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return sizes;
}

Sizes without_first(const Sizes& sizes) {
  return {sizes.begin() + 1, sizes.end()};
}

// Returns whether the larger operand is viewed as a matrix, so that mm or mv is used instead of
// bmm. This is should_fold() in ATen's Linalg.cpp.
bool folds(const Operands& x) {
  const bool self_larger = x.self_dim() >= x.other_dim();
  const auto sizes = self_larger ? x.self_sizes : transposed(x.other_sizes);
  const auto strides = self_larger ? x.self_strides : transposed(x.other_strides);
  const auto small_dim = self_larger ? x.other_dim() : x.self_dim();
  if (sizes.size() < 3 || small_dim > 2)
    return false;
  if (self_larger ? x.other_requires_grad : x.self_requires_grad)
    return true;
  if (x.self_dim() == 2)
    return false;
  if (c10::multiply_integers(sizes) == 0)
    return true;
  for (size_t i = 0; i + 2 < sizes.size(); ++i) {
    if (strides[i] != strides[i + 1] * sizes[i + 1])
      return false;
  }
  return true;
}

enum class Squeeze { kNone, kSelf, kOther };

// If one of two batches has size 1 and is broadcast, it is treated as a matrix.
Squeeze squeezes(const Operands& x) {
  if (x.self_dim() != 3 || x.other_dim() != 3 || x.self_sizes[0] == x.other_sizes[0])
    return Squeeze::kNone;
  if (x.self_sizes[0] == 1 && x.self_requires_grad)
    return Squeeze::kSelf;
  if (x.other_sizes[0] == 1 && x.other_requires_grad)
    return Squeeze::kOther;
  return Squeeze::kNone;
}

Operands squeezed(Operands x, Squeeze which) {
  if (which == Squeeze::kSelf) {
    x.self_sizes = without_first(x.self_sizes);
    x.self_strides = without_first(x.self_strides);
  } else {
    x.other_sizes = without_first(x.other_sizes);
    x.other_strides = without_first(x.other_strides);
  }
  return x;
}

Sizes folded_sizes(const Sizes& sizes) {
  const IntArrayRef all(sizes);
  return {c10::multiply_integers(all.slice(0, all.size() - 1)), all.back()};
}

Sizes folded_strides(const Sizes& sizes, const Sizes& strides) {
  const auto folded = folded_sizes(sizes);
  if (auto view = at::detail::computeStride(sizes, strides, folded))
    return *view;
  return {folded[1], 1};
}

Tensor fold(const Tensor& tensor) {
  return tensor.reshape(folded_sizes(tensor.sizes().vec()));
}

// The operands of bmm: [batch..., n, m] and [batch..., m, p].
struct Batched {
  Sizes self_expanded, other_expanded;
  int64_t batch, n, m, p;
  bool vector;

  explicit Batched(const Operands& x) : vector(x.other_dim() == 1) {
    const IntArrayRef self(x.self_sizes);
    const IntArrayRef other(x.other_sizes);
    n = self.size() > 1 ? self[self.size() - 2] : 1;
    m = self.back();
    p = vector ? 1 : other.back();
    const auto rows = vector ? other.front() : other[other.size() - 2];
    auto leading = [](IntArrayRef sizes) {
      return sizes.slice(0, sizes.size() > 2 ? sizes.size() - 2 : 0);
    };
    const auto batches = at::infer_size(leading(self), leading(other));
    batch = c10::multiply_integers(batches);
    self_expanded = batches;
    self_expanded.insert(self_expanded.end(), {n, m});
    other_expanded = batches;
    other_expanded.push_back(rows);
    if (!vector)
      other_expanded.push_back(p);
  }

  Tensor self(const Tensor& tensor) const {
    return tensor.expand(self_expanded).reshape({batch, n, m});
  }
  Tensor other(const Tensor& tensor) const {
    const auto expanded = tensor.expand(other_expanded);
    return vector ? expanded.reshape({batch, m}).unsqueeze(2) : expanded.reshape({batch, m, p});
  }
  Tensor grad(const Tensor& tensor) const { return tensor.reshape({batch, n, p}); }
};

Tensor grad_of_self(const Tensor& grad, const Tensor& other, const Operands& x) {
  const auto dims = std::make_pair(x.self_dim(), x.other_dim());
  if (dims == std::make_pair<size_t, size_t>(1, 1))
    return grad * other.conj();
  if (dims == std::make_pair<size_t, size_t>(2, 1))
    return grad.ger(other.conj());
  if (dims == std::make_pair<size_t, size_t>(1, 2)) {
    const auto size = x.self_sizes[0];
    const auto stride = x.self_strides[0];
    return mm_grad_self(grad.unsqueeze(0), other, {1, size}, {size * stride, stride}, 1).squeeze(0);
  }
  if (dims == std::make_pair<size_t, size_t>(2, 2))
    return mm_grad_self(grad, other, x.self_sizes, x.self_strides, 1);
  if (const auto which = squeezes(x); which == Squeeze::kSelf)
    return grad_of_self(grad, other, squeezed(x, which)).unsqueeze(0);
  else if (which == Squeeze::kOther)
    return grad_of_self(grad, other.squeeze(0), squeezed(x, which));
  if (!folds(x)) {
    const Batched batched(x);
    const auto product = batched.grad(grad).bmm(batched.other(other).transpose(1, 2).conj());
    return at::sum_to(product.reshape(batched.self_expanded), x.self_sizes);
  }
  if (x.self_dim() >= x.other_dim()) {
    const auto sizes = folded_sizes(x.self_sizes);
    if (x.other_dim() == 1)
      return grad.reshape({sizes[0]}).ger(other.conj()).reshape(x.self_sizes);
    const auto strides = folded_strides(x.self_sizes, x.self_strides);
    return mm_grad_self(grad.reshape({sizes[0], x.other_sizes[1]}), other, sizes, strides, 1)
        .reshape(x.self_sizes);
  }
  const auto folded = fold(other.mT());
  if (x.self_dim() == 1)
    return folded.conj().t().mv(grad.reshape({folded.size(0)}));
  return mm_grad_mat2(grad.mT().reshape({folded.size(0), x.self_sizes[0]}), folded,
                      transposed(x.self_sizes), transposed(x.self_strides), 1)
      .t();
}

Tensor grad_of_other(const Tensor& grad, const Tensor& self, const Operands& x) {
  const auto dims = std::make_pair(x.self_dim(), x.other_dim());
  if (dims == std::make_pair<size_t, size_t>(1, 1))
    return grad * self.conj();
  if (dims == std::make_pair<size_t, size_t>(2, 1))
    return self.conj().t().mv(grad);
  if (dims == std::make_pair<size_t, size_t>(1, 2))
    return mm_grad_mat2(grad.unsqueeze(0), self.unsqueeze(0), x.other_sizes, x.other_strides, 1);
  if (dims == std::make_pair<size_t, size_t>(2, 2))
    return mm_grad_mat2(grad, self, x.other_sizes, x.other_strides, 1);
  if (const auto which = squeezes(x); which == Squeeze::kSelf)
    return grad_of_other(grad, self.squeeze(0), squeezed(x, which));
  else if (which == Squeeze::kOther)
    return grad_of_other(grad, self, squeezed(x, which)).unsqueeze(0);
  if (!folds(x)) {
    const Batched batched(x);
    auto product = batched.self(self).transpose(1, 2).conj().bmm(batched.grad(grad));
    if (batched.vector)
      product = product.squeeze(2);
    return at::sum_to(product.reshape(batched.other_expanded), x.other_sizes);
  }
  if (x.self_dim() >= x.other_dim()) {
    const auto folded = fold(self);
    if (x.other_dim() == 1)
      return folded.conj().t().mv(grad.reshape({folded.size(0)}));
    return mm_grad_mat2(grad.reshape({folded.size(0), x.other_sizes[1]}), folded, x.other_sizes,
                        x.other_strides, 1);
  }
  const auto larger = transposed(x.other_sizes);
  const auto sizes = folded_sizes(larger);
  if (x.self_dim() == 1)
    return grad.reshape({sizes[0]}).ger(self.conj()).reshape(larger).mT();
  const auto strides = folded_strides(larger, transposed(x.other_strides));
  return mm_grad_self(grad.mT().reshape({sizes[0], x.self_sizes[0]}), self.t(), sizes, strides, 1)
      .reshape(larger)
      .mT();
}

Operands operands(const Tensor& self, const Tensor& other, bool needs_self, bool needs_other) {
  return {self.sizes().vec(),    self.strides().vec(), other.sizes().vec(),
          other.strides().vec(), needs_self,           needs_other};
}

Tensor matmul(Tensor self, Tensor other, bool needs_self, bool needs_other) {
  const auto x = operands(self, other, needs_self, needs_other);
  if (x.self_dim() == 0 || x.other_dim() == 0)
    return at::matmul(self, other);  // raises
  if (const auto which = squeezes(x); which == Squeeze::kSelf)
    return matmul(self.squeeze(0), other, needs_self, needs_other);
  else if (which == Squeeze::kOther)
    return matmul(self, other.squeeze(0), needs_self, needs_other);
  if (!folds(x))
    return at::matmul(self, other);
  const bool transpose = x.other_dim() > x.self_dim();
  const auto larger = transpose ? other.mT() : self;
  const auto smaller = !transpose ? other : x.self_dim() == 2 ? self.t() : self;
  Sizes shape(larger.sizes().begin(), larger.sizes().end() - 1);
  if (smaller.dim() == 1)
    return at::_unsafe_view(fold(larger).mv(smaller), shape);
  shape.push_back(smaller.size(1));
  const auto product = at::_unsafe_view(fold(larger).mm(smaller), shape);
  return transpose ? product.mT().contiguous() : product;
}

Tensor matmul_grad_self(Tensor grad, Tensor other, Sizes sizes, Sizes strides, bool needs_other) {
  return grad_of_self(grad, other,
                      {std::move(sizes), std::move(strides), other.sizes().vec(),
                       other.strides().vec(), true, needs_other});
}

Tensor matmul_grad_other(Tensor grad, Tensor self, Sizes sizes, Sizes strides, bool needs_self) {
  return grad_of_other(grad, self,
                       {self.sizes().vec(), self.strides().vec(), std::move(sizes),
                        std::move(strides), needs_self, true});
}

// The gradient of one of the operands of matmul(x, x). Eager adds both to the gradient of x: with
// two dimensions first that of the left one, with more that of the right one.
Tensor matmul_grad_of_square(Tensor grad, Tensor operand, Sizes sizes, Sizes strides,
                             bool is_first) {
  const bool is_left = is_first == (operand.dim() <= 2);
  return is_left ? matmul_grad_self(grad, operand, std::move(sizes), std::move(strides), true)
                 : matmul_grad_other(grad, operand, std::move(sizes), std::move(strides), true);
}

}  // namespace

// As in Linear.cpp: with a bias, an input that can be viewed as a matrix is passed to addmm.
bool linear_flattens(Tensor input, std::optional<Tensor> bias) {
  if (!bias || !bias->defined())
    return false;
  return input.dim() == 2 || (input.is_contiguous() && (input.dim() == 3 || bias->dim() == 1));
}

Tensor linear(Tensor input, Tensor weight, std::optional<Tensor> bias, bool needs_input,
              bool needs_weight) {
  if (input.dim() == 0 || weight.dim() == 0 || input.is_mkldnn() || linear_flattens(input, bias))
    return at::linear(input, weight, bias);
  auto output = matmul(input, weight.t(), needs_input, needs_weight);
  if (bias && bias->defined())
    output.add_(*bias);
  return output;
}

// Returns the matrix of all rows of a tensor, of which each has this length. It may be zero.
Tensor rows_of(const Tensor& tensor, int64_t length) {
  const auto sizes = tensor.sizes();
  return tensor.reshape({c10::multiply_integers(sizes.begin(), sizes.end() - 1), length});
}

Tensor linear_grad_bias(Tensor grad, Sizes sizes, bool flattened) {
  // As in eager PyTorch, the matrix is summed: another order of summation would round differently.
  return at::sum_to(flattened ? rows_of(grad, grad.size(-1)) : grad, sizes);
}

Tensor linear_grad_weight(Tensor grad, Tensor input, Sizes sizes, Sizes strides, bool flattened,
                          bool needs_input) {
  const auto t_sizes = transposed(std::move(sizes));
  const auto t_strides = transposed(std::move(strides));
  const auto gradient = flattened ? mm_grad_mat2(rows_of(grad, t_sizes[1]),
                                                 rows_of(input, t_sizes[0]), t_sizes, t_strides, 1)
                                  : matmul_grad_other(grad, input, t_sizes, t_strides, needs_input);
  return gradient.t();
}

Tensor linear_grad_input(Tensor grad, Tensor weight, Sizes sizes, Sizes strides, bool flattened,
                         bool needs_weight) {
  const auto t = weight.t();
  if (!flattened)
    return matmul_grad_self(grad, t, std::move(sizes), std::move(strides), needs_weight);
  const auto matrix = sizes.size() == 2 ? sizes : folded_sizes(sizes);
  const auto matrix_strides = sizes.size() == 2 ? strides : Sizes{matrix[1], 1};
  return mm_grad_self(grad.reshape({matrix[0], t.size(1)}), t, matrix, matrix_strides, 1)
      .reshape(sizes);
}

namespace {

Tensor mm_grad_self_boxed(Tensor grad, Tensor mat2, Sizes sizes, Sizes strides, at::Scalar alpha) {
  return mm_grad_self(grad, mat2, std::move(sizes), std::move(strides), alpha);
}

Tensor mm_grad_mat2_boxed(Tensor grad, Tensor mat1, Sizes sizes, Sizes strides, at::Scalar alpha) {
  return mm_grad_mat2(grad, mat1, std::move(sizes), std::move(strides), alpha);
}

}  // namespace

void register_matrix_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::mm_grad_self(Tensor gradient, Tensor mat2, int[] size, "
                    "int[] stride, Scalar alpha) -> Tensor",
                    &mm_grad_self_boxed),
      pure_operator("aten_recompute::mm_grad_mat2(Tensor gradient, Tensor mat1, int[] size, "
                    "int[] stride, Scalar alpha) -> Tensor",
                    &mm_grad_mat2_boxed),
      pure_operator("aten_recompute::matmul(Tensor self, Tensor other, bool needs_self, "
                    "bool needs_other) -> Tensor",
                    &matmul),
      pure_operator("aten_recompute::matmul_grad_self(Tensor gradient, Tensor other, int[] size, "
                    "int[] stride, bool needs_other) -> Tensor",
                    &matmul_grad_self),
      pure_operator("aten_recompute::matmul_grad_other(Tensor gradient, Tensor self, int[] size, "
                    "int[] stride, bool needs_self) -> Tensor",
                    &matmul_grad_other),
      pure_operator("aten_recompute::matmul_grad_of_square(Tensor gradient, Tensor operand, "
                    "int[] size, int[] stride, bool is_first) -> Tensor",
                    &matmul_grad_of_square),
      pure_operator("aten_recompute::linear_flattens(Tensor input, Tensor? bias) -> bool",
                    &linear_flattens),
      pure_operator("aten_recompute::linear(Tensor input, Tensor weight, Tensor? bias, "
                    "bool needs_input, bool needs_weight) -> Tensor",
                    &linear),
      pure_operator("aten_recompute::linear_grad_bias(Tensor gradient, int[] size, bool flattened) "
                    "-> Tensor",
                    &linear_grad_bias),
      pure_operator("aten_recompute::linear_grad_weight(Tensor gradient, Tensor input, int[] size, "
                    "int[] stride, bool flattened, bool needs_input) -> Tensor",
                    &linear_grad_weight),
      pure_operator("aten_recompute::linear_grad_input(Tensor gradient, Tensor weight, int[] size, "
                    "int[] stride, bool flattened, bool needs_weight) -> Tensor",
                    &linear_grad_input),
  });
}

}  // namespace aten_recompute
