#include "rules/kernels/small_products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "rules/kernels/parallel.h"
#include "rules/kernels/plain_operands.h"
#include "rules/kernels/vectorized.h"

namespace aten_recompute {
namespace {

using at::Tensor;

// ATen computes products of fewer multiplications than this with plain loops (LinearAlgebra.cpp,
// bmm_out_or_baddbmm_), and others with a library whose order of sums is its own.
constexpr int64_t kFewestOfLibrary = 400;

constexpr int64_t kLanes = 8;

// One of the matrices of a batch: element [i, j] lies at data[i * rows + j * columns].
template <class Number>
struct Matrices {
  const Number* data;
  int64_t batch, rows, columns;  // strides in elements

  Matrices<Number> transposed() const { return {data, batch, columns, rows}; }
};

// A contiguous result, or its transpose.
template <class Number>
struct Result {
  Number* data;
  int64_t batch, rows, columns;

  Result<Number> transposed() const { return {data, batch, columns, rows}; }
};

struct Extent {
  int64_t n, k, m;
};

// Rows of a right matrix that are whole vectors: row k begins at data + k * width.
template <class Number>
struct Rows {
  const Number* data;
  int64_t width;
};

// Sums start at 0 and go through k in order, as ATen's do.
template <class Number>
ATEN_RECOMPUTE_INLINED void multiply_by_rows(const Number* left, const Matrices<Number>& strides,
                                             const Rows<Number>& rows, Number* to,
                                             const Result<Number>& result, const Extent& extent) {
  for (int64_t i = 0; i < extent.n; ++i, left += strides.rows, to += result.rows) {
    for (int64_t first = 0; first < extent.m; first += kLanes) {
      std::array<Number, kLanes> sums{};
      for (int64_t k = 0; k < extent.k; ++k) {
        const auto factor = left[k * strides.columns];
        for (int64_t lane = 0; lane < kLanes; ++lane)
          sums[lane] += factor * rows.data[k * rows.width + first + lane];
      }
      const auto count = extent.m - first;
      if (count >= kLanes && result.columns == 1) {
        for (int64_t lane = 0; lane < kLanes; ++lane)
          to[first + lane] = sums[lane];
      } else {
        for (int64_t lane = 0; lane < std::min(kLanes, count); ++lane)
          to[(first + lane) * result.columns] = sums[lane];
      }
    }
  }
}

// The same for a single row, for which it takes too long to bring a right matrix into order:
// `Count` elements of the result at a time.
template <int Count, class Number>
ATEN_RECOMPUTE_INLINED void row_times_matrix(const Number* left, int64_t left_stride,
                                             const Number* right, const Matrices<Number>& strides,
                                             Number* to, int64_t to_stride, int64_t num_summed) {
  std::array<Number, Count> sums{};
  for (int64_t k = 0; k < num_summed; ++k) {
    const auto factor = left[k * left_stride];
    for (int64_t j = 0; j < Count; ++j)
      sums[j] += factor * right[k * strides.rows + j * strides.columns];
  }
  for (int64_t j = 0; j < Count; ++j)
    to[j * to_stride] = sums[j];
}

// Multiplies matrices number `begin` to `end`.
template <class Number>
ATEN_RECOMPUTE_INLINED void multiply_matrices(const Matrices<Number>& left,
                                              const Matrices<Number>& right,
                                              const Result<Number>& result, const Extent& extent,
                                              int64_t begin, int64_t end) {
  const bool has_whole_rows = right.columns == 1 && extent.m % kLanes == 0;
  if (extent.n == 1 && !has_whole_rows) {
    for (int64_t b = begin; b < end; ++b) {
      const auto* row = left.data + b * left.batch;
      const auto* matrix = right.data + b * right.batch;
      auto* to = result.data + b * result.batch;
      int64_t j = 0;
      for (; j + 4 <= extent.m; j += 4) {
        row_times_matrix<4>(row, left.columns, matrix + j * right.columns, right,
                            to + j * result.columns, result.columns, extent.k);
      }
      for (; j < extent.m; ++j) {
        row_times_matrix<1>(row, left.columns, matrix + j * right.columns, right,
                            to + j * result.columns, result.columns, extent.k);
      }
    }
    return;
  }
  if (has_whole_rows) {
    for (int64_t b = begin; b < end; ++b) {
      multiply_by_rows(left.data + b * left.batch, left,
                       Rows<Number>{right.data + b * right.batch, right.rows},
                       result.data + b * result.batch, result, extent);
    }
    return;
  }
  // At most 399 elements, in rows that are filled up to whole vectors.
  alignas(64) std::array<Number, kFewestOfLibrary * kLanes> packed;
  const auto width = (extent.m + kLanes - 1) / kLanes * kLanes;
  std::fill_n(packed.begin(), extent.k * width, Number(0));
  for (int64_t b = begin; b < end; ++b) {
    const auto* from = right.data + b * right.batch;
    for (int64_t k = 0; k < extent.k; ++k) {
      for (int64_t j = 0; j < extent.m; ++j)
        packed[k * width + j] = from[k * right.rows + j * right.columns];
    }
    multiply_by_rows(left.data + b * left.batch, left, Rows<Number>{packed.data(), width},
                     result.data + b * result.batch, result, extent);
  }
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_float_matrices(const Matrices<float>& left, const Matrices<float>& right,
                             const Result<float>& result, const Extent& extent, int64_t begin,
                             int64_t end) {
  multiply_matrices(left, right, result, extent, begin, end);
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_double_matrices(const Matrices<double>& left, const Matrices<double>& right,
                              const Result<double>& result, const Extent& extent, int64_t begin,
                              int64_t end) {
  multiply_matrices(left, right, result, extent, begin, end);
}

template <class Number>
Matrices<Number> matrices_of(const Tensor& tensor) {
  return {tensor.const_data_ptr<Number>(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

template <class Number>
Tensor multiply_all(const Tensor& self, const Tensor& mat2,
                    void (*range)(const Matrices<Number>&, const Matrices<Number>&,
                                  const Result<Number>&, const Extent&, int64_t, int64_t)) {
  Extent extent{self.size(1), self.size(2), mat2.size(2)};
  const auto batch = self.size(0);
  auto product = at::empty({batch, extent.n, extent.m}, self.options());
  auto left = matrices_of<Number>(self);
  auto right = matrices_of<Number>(mat2);
  Result<Number> result{product.mutable_data_ptr<Number>(), extent.n * extent.m, extent.m, 1};
  // Vectors run along the longer side of the result.
  if (extent.m < extent.n) {
    const auto first = left.transposed();
    left = right.transposed();
    right = first;
    result = result.transposed();
    std::swap(extent.n, extent.m);
  }
  const auto grain =
      std::max<int64_t>(1, at::internal::GRAIN_SIZE / (extent.n * extent.k * extent.m));
  at::parallel_for(0, batch, grain, [&](int64_t begin, int64_t end) {
    range(left, right, result, extent, begin, end);
  });
  return product;
}

Tensor multiply_all(const Tensor& self, const Tensor& mat2) {
  return self.scalar_type() == at::kFloat
             ? multiply_all<float>(self, mat2, &multiply_float_matrices)
             : multiply_all<double>(self, mat2, &multiply_double_matrices);
}

// Returns whether ATen multiplies these tensors with plain loops.
bool are_small_matrices(const Tensor& self, const Tensor& mat2) {
  if (!is_plain_operand(self) || !is_plain_operand(mat2) || self.dim() != 3 || mat2.dim() != 3 ||
      self.scalar_type() != mat2.scalar_type() || self.size(0) != mat2.size(0) ||
      self.size(2) != mat2.size(1))
    return false;
  const auto count = self.size(1) * self.size(2) * mat2.size(2);
  return self.size(0) > 0 && count > 0 && count < kFewestOfLibrary;
}

// Returns whether this processor and version of ATen give the bits of multiply_matrices(): a
// compiler may have made one rounding of a product and its sum.
bool has_bits_of_aten() {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto self = at::arange(1, 5 * 4 * 9 + 1, type).sin_().view({5, 4, 9});
    const auto mat2 = at::arange(1, 5 * 9 * 11 + 1, type).cos_().view({5, 9, 11});
    if (!multiply_all(self, mat2).equal(at::bmm(self, mat2)))
      return false;
  }
  return true;
}

}  // namespace

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  if (!are_small_matrices(self, mat2))
    return at::bmm(self, mat2);
  static const bool is_exact = has_bits_of_aten();
  return is_exact ? multiply_all(self, mat2) : at::bmm(self, mat2);
}

}  // namespace aten_recompute
