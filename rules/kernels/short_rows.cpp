#include "rules/kernels/short_rows.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "rules/kernels/loops.h"
#include "rules/kernels/parallel.h"
#include "rules/kernels/plain_operands.h"
#include "rules/kernels/vectorized.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using at::internal::GRAIN_SIZE;

// Rows of a number each times a row, where the numbers lie one after the other, as the rows of the
// result do. `Stride`: from one row of the operand to the next. The compiler, which knows strides,
// makes vectors of several rows.
template <int Length, int Stride, class Number>
ATEN_RECOMPUTE_INLINED void multiply_neighbors(const Number* numbers, const Number* __restrict rows,
                                               Number* __restrict to, int64_t count) {
  constexpr int64_t kAtATime = 8;
  int64_t row = 0;
  for (; row + kAtATime <= count; row += kAtATime) {
    for (int64_t k = row; k < row + kAtATime; ++k) {
      for (int64_t i = 0; i < Length; ++i)
        to[k * Length + i] = numbers[k] * rows[k * Stride + i];
    }
  }
  for (; row < count; ++row) {
    for (int64_t i = 0; i < Length; ++i)
      to[row * Length + i] = numbers[row] * rows[row * Stride + i];
  }
}

// The rows of a block: `Length` elements, or any number if that is 0. Strides of operands inside of
// a row are 0 or 1, the result's is 1.
template <int Length, bool left_moves, bool right_moves>
struct UnitRows {
  template <class Number>
  ATEN_RECOMPUTE_INLINED static void multiply(const Number* left, const Number* right, Number* to,
                                              const Loops& loops, int64_t begin, int64_t end) {
    if constexpr (Length > 0 && left_moves != right_moves) {
      const auto* numbers = left_moves ? right : left;
      const auto* rows = left_moves ? left : right;
      const auto of_numbers = loops.strides[left_moves ? 2 : 1][1];
      const auto of_rows = loops.strides[left_moves ? 1 : 2][1];
      const bool are_neighbors =
          of_numbers == 1 && loops.strides[0][1] == Length && to != numbers && to != rows;
      if (are_neighbors && of_rows == Length) {
        return multiply_neighbors<Length, Length>(numbers + begin, rows + begin * Length,
                                                  to + begin * Length, end - begin);
      }
      if (are_neighbors && of_rows == 0) {
        return multiply_neighbors<Length, 0>(numbers + begin, rows, to + begin * Length,
                                             end - begin);
      }
    }
    const auto length = Length > 0 ? Length : loops.sizes[0];
    for (int64_t row = begin; row < end; ++row) {
      const auto* a = left + row * loops.strides[1][1];
      const auto* b = right + row * loops.strides[2][1];
      auto* result = to + row * loops.strides[0][1];
      const auto first_left = *a;
      const auto first_right = *b;
      // If the result lies in the memory of an operand, both have the same strides.
#pragma GCC ivdep
      for (int64_t i = 0; i < length; ++i) {
        if constexpr (left_moves && right_moves)
          result[i] = a[i] * b[i];
        else if constexpr (left_moves)
          result[i] = a[i] * first_right;
        else
          result[i] = first_left * b[i];
      }
    }
  }
};

// Rows with any strides.
struct StridedRows {
  template <class Number>
  ATEN_RECOMPUTE_INLINED static void multiply(const Number* left, const Number* right, Number* to,
                                              const Loops& loops, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* a = left + row * loops.strides[1][1];
      const auto* b = right + row * loops.strides[2][1];
      auto* result = to + row * loops.strides[0][1];
      for (int64_t i = 0; i < loops.sizes[0]; ++i) {
        result[i * loops.strides[0][0]] = a[i * loops.strides[1][0]] * b[i * loops.strides[2][0]];
      }
    }
  }
};

// Blocks, or rows of the only block.
template <class Kind, class Number>
ATEN_RECOMPUTE_INLINED void multiply_blocks(const Number* left, const Number* right, Number* to,
                                            const Loops& loops, int64_t begin, int64_t end) {
  if (loops.num_blocks == 1)
    return Kind::multiply(left, right, to, loops, begin, end);
  loops.for_each_block(begin, end, [&](const std::array<int64_t, 3>& offsets) {
    Kind::multiply(left + offsets[1], right + offsets[2], to + offsets[0], loops, 0,
                   loops.sizes[1]);
  });
}

template <bool left_moves, bool right_moves, class Number>
ATEN_RECOMPUTE_INLINED void multiply_rows(const Number* left, const Number* right, Number* to,
                                          const Loops& loops, int64_t begin, int64_t end) {
  switch (loops.sizes[0]) {
    case 2:
      return multiply_blocks<UnitRows<2, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    case 3:
      return multiply_blocks<UnitRows<3, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    case 4:
      return multiply_blocks<UnitRows<4, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    case 5:
      return multiply_blocks<UnitRows<5, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    case 7:
      return multiply_blocks<UnitRows<7, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    case 8:
      return multiply_blocks<UnitRows<8, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    case 9:
      return multiply_blocks<UnitRows<9, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
    default:
      return multiply_blocks<UnitRows<0, left_moves, right_moves>>(left, right, to, loops, begin,
                                                                   end);
  }
}

// Selects the kind of rows, which all blocks have.
template <class Number>
ATEN_RECOMPUTE_INLINED void multiply_in_loops(const Number* left, const Number* right, Number* to,
                                              const Loops& loops, int64_t begin, int64_t end) {
  const auto of_result = loops.strides[0][0];
  const auto of_left = loops.strides[1][0];
  const auto of_right = loops.strides[2][0];
  if (of_result == 1 && of_left == 1 && of_right == 1)
    return multiply_rows<true, true>(left, right, to, loops, begin, end);
  if (of_result == 1 && of_left == 0 && of_right == 1)
    return multiply_rows<false, true>(left, right, to, loops, begin, end);
  if (of_result == 1 && of_left == 1 && of_right == 0)
    return multiply_rows<true, false>(left, right, to, loops, begin, end);
  multiply_blocks<StridedRows>(left, right, to, loops, begin, end);
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_floats(const float* left, const float* right, float* to, const Loops& loops,
                     int64_t begin, int64_t end) {
  multiply_in_loops(left, right, to, loops, begin, end);
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_doubles(const double* left, const double* right, double* to, const Loops& loops,
                      int64_t begin, int64_t end) {
  multiply_in_loops(left, right, to, loops, begin, end);
}

template <class Number, class Range>
void multiply(const at::TensorIteratorBase& iterator, const Loops& loops, const Range& range) {
  const auto* left = static_cast<const Number*>(iterator.data_ptr(1));
  const auto* right = static_cast<const Number*>(iterator.data_ptr(2));
  auto* to = static_cast<Number*>(iterator.data_ptr(0));
  const bool is_one_block = loops.num_blocks == 1;
  const auto count = is_one_block ? loops.sizes[1] : loops.num_blocks;
  const auto elements = is_one_block ? loops.sizes[0] : loops.block_size();
  at::parallel_for(0, count, std::max<int64_t>(1, GRAIN_SIZE / elements),
                   [&](int64_t begin, int64_t end) { range(left, right, to, loops, begin, end); });
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_row_of_floats(const float* left, const float* right, float* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i)
    to[i] = left[i] * right[i];
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_row_of_doubles(const double* left, const double* right, double* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i)
    to[i] = left[i] * right[i];
}

template <class Number, class Range>
void multiply_row(const Tensor& self, const Tensor& other, const Tensor& result,
                  const Range& range) {
  const auto* left = self.const_data_ptr<Number>();
  const auto* right = other.const_data_ptr<Number>();
  auto* to = result.mutable_data_ptr<Number>();
  at::parallel_for(0, result.numel(), GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    range(left + begin, right + begin, to + begin, end - begin);
  });
}

// From this length on, ATen's function for a row is as fast.
constexpr int64_t kLongRow = 24;

bool has_long_rows(const Tensor& tensor) {
  return tensor.dim() > 0 && tensor.size(-1) >= kLongRow;
}

// Writes to `result` or, if that is undefined, to new memory. Returns nullopt if there are too many
// loops, or rows are long.
std::optional<Tensor> multiply(const Tensor& self, const Tensor& other, const Tensor& result) {
  const bool is_one_row = self.sizes() == other.sizes() && self.is_contiguous() &&
                          other.is_contiguous() && (!result.defined() || result.is_contiguous());
  if (is_one_row) {
    auto product =
        result.defined() ? result : Tensor(at::detail::empty_cpu(self.sizes(), self.scalar_type()));
    if (self.scalar_type() == at::kFloat)
      multiply_row<float>(self, other, product, &multiply_row_of_floats);
    else
      multiply_row<double>(self, other, product, &multiply_row_of_doubles);
    return product;
  }
  if (has_long_rows(self) || has_long_rows(other))
    return std::nullopt;
  auto iterator = at::TensorIteratorConfig()
                      .set_check_mem_overlap(result.defined())
                      .add_output(result)
                      .add_const_input(self)
                      .add_const_input(other)
                      .build();
  if (iterator.ndim() > kMostDims || (iterator.ndim() > 0 && iterator.shape()[0] >= kLongRow))
    return std::nullopt;
  if (iterator.numel() > 0) {
    const Loops loops(iterator);
    if (self.scalar_type() == at::kFloat)
      multiply<float>(iterator, loops, &multiply_floats);
    else
      multiply<double>(iterator, loops, &multiply_doubles);
  }
  return iterator.output();
}

}  // namespace

Tensor mul(const Tensor& self, const Tensor& other) {
  if (!is_plain_operand(self) || !is_plain_operand(other) ||
      self.scalar_type() != other.scalar_type())
    return at::mul(self, other);
  if (auto result = multiply(self, other, Tensor()))
    return *result;
  return at::mul(self, other);
}

Tensor mul_to(const Tensor& self, const Tensor& other, Tensor result) {
  if (!is_plain_operand(self) || !is_plain_operand(other) || !is_plain_operand(result) ||
      self.scalar_type() != other.scalar_type() || self.scalar_type() != result.scalar_type() ||
      result.sizes() != at::IntArrayRef(at::infer_size(self.sizes(), other.sizes())) ||
      !multiply(self, other, result))
    at::mul_out(result, self, other);
  return result;
}

}  // namespace aten_recompute
