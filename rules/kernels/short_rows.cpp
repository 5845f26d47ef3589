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

// The rows of a block: `Length` elements, or any number if that is 0. Strides of operands inside of
// a row are 0 or 1, the result's is 1.
template <int Length, bool left_moves, bool right_moves, class Number>
ATEN_RECOMPUTE_INLINED void multiply_rows(const Number* left, const Number* right, Number* to,
                                          const Loops& loops, int64_t begin, int64_t end) {
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

template <bool left_moves, bool right_moves, class Number>
ATEN_RECOMPUTE_INLINED void multiply_rows(const Number* left, const Number* right, Number* to,
                                          const Loops& loops, int64_t begin, int64_t end) {
  switch (loops.sizes[0]) {
    case 2:
      return multiply_rows<2, left_moves, right_moves>(left, right, to, loops, begin, end);
    case 3:
      return multiply_rows<3, left_moves, right_moves>(left, right, to, loops, begin, end);
    case 4:
      return multiply_rows<4, left_moves, right_moves>(left, right, to, loops, begin, end);
    case 5:
      return multiply_rows<5, left_moves, right_moves>(left, right, to, loops, begin, end);
    case 7:
      return multiply_rows<7, left_moves, right_moves>(left, right, to, loops, begin, end);
    case 8:
      return multiply_rows<8, left_moves, right_moves>(left, right, to, loops, begin, end);
    case 9:
      return multiply_rows<9, left_moves, right_moves>(left, right, to, loops, begin, end);
    default:
      return multiply_rows<0, left_moves, right_moves>(left, right, to, loops, begin, end);
  }
}

// Rows number `begin` to `end` of one block.
template <class Number>
ATEN_RECOMPUTE_INLINED void multiply_block(const Number* left, const Number* right, Number* to,
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
  for (int64_t row = begin; row < end; ++row) {
    const auto* a = left + row * loops.strides[1][1];
    const auto* b = right + row * loops.strides[2][1];
    auto* result = to + row * loops.strides[0][1];
    for (int64_t i = 0; i < loops.sizes[0]; ++i)
      result[i * of_result] = a[i * of_left] * b[i * of_right];
  }
}

template <class Number>
ATEN_RECOMPUTE_INLINED void multiply_blocks(const Number* left, const Number* right, Number* to,
                                            const Loops& loops, int64_t begin, int64_t end) {
  loops.for_each_block(begin, end, [&](const std::array<int64_t, 3>& offsets) {
    multiply_block(left + offsets[1], right + offsets[2], to + offsets[0], loops, 0,
                   loops.sizes[1]);
  });
}

// Blocks, or rows of the only block.
ATEN_RECOMPUTE_VECTORIZED
void multiply_floats(const float* left, const float* right, float* to, const Loops& loops,
                     int64_t begin, int64_t end) {
  if (loops.num_blocks == 1)
    multiply_block(left, right, to, loops, begin, end);
  else
    multiply_blocks(left, right, to, loops, begin, end);
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_doubles(const double* left, const double* right, double* to, const Loops& loops,
                      int64_t begin, int64_t end) {
  if (loops.num_blocks == 1)
    multiply_block(left, right, to, loops, begin, end);
  else
    multiply_blocks(left, right, to, loops, begin, end);
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
