#include "rules/kernels/short_rows.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/as_strided_native.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "rules/kernels/parallel.h"
#include "rules/kernels/plain_operands.h"
#include "rules/kernels/vectorized.h"
#include "rules/kernels/views.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using at::internal::GRAIN_SIZE;

constexpr int64_t kMostDims = 6;

// The loops of an operator with up to three tensors, the innermost first. The first tensor is the
// result. Strides are in elements.
struct Loops {
  int64_t num_dims = 0;
  std::array<int64_t, kMostDims> sizes;
  std::array<std::array<int64_t, kMostDims>, 3> strides{};
  int64_t num_blocks = 1;  // of the two innermost dimensions

  explicit Loops(const at::TensorIteratorBase& iterator) : num_dims(iterator.ndim()) {
    sizes.fill(1);
    for (int dim = 0; dim < num_dims; ++dim) {
      sizes[dim] = iterator.shape()[dim];
      if (dim >= 2)
        num_blocks *= sizes[dim];
    }
    for (int tensor = 0; tensor < iterator.ntensors(); ++tensor) {
      const auto bytes = static_cast<int64_t>(iterator.element_size(tensor));
      for (int dim = 0; dim < num_dims; ++dim)
        strides[tensor][dim] = iterator.strides(tensor)[dim] / bytes;
    }
  }

  int64_t block_size() const { return sizes[0] * sizes[1]; }

  // Calls `run` with the offset of each tensor for blocks number `begin` to `end`.
  template <class Run>
  ATEN_RECOMPUTE_INLINED void for_each_block(int64_t begin, int64_t end, const Run& run) const {
    std::array<int64_t, kMostDims> index{};
    std::array<int64_t, 3> offsets{};
    auto rest = begin;
    for (int64_t dim = 2; dim < num_dims; ++dim) {
      index[dim] = rest % sizes[dim];
      rest /= sizes[dim];
      for (int tensor = 0; tensor < 3; ++tensor)
        offsets[tensor] += index[dim] * strides[tensor][dim];
    }
    for (int64_t block = begin; block < end; ++block) {
      run(offsets);
      for (int64_t dim = 2; dim < num_dims; ++dim) {
        const bool is_complete = ++index[dim] == sizes[dim];
        const auto step = is_complete ? 1 - sizes[dim] : int64_t{1};
        for (int tensor = 0; tensor < 3; ++tensor)
          offsets[tensor] += step * strides[tensor][dim];
        if (!is_complete)
          break;
        index[dim] = 0;
      }
    }
  }
};

// ---- Products ----

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

// Writes to `result` or, if that is undefined, to new memory. Returns nullopt if there are too many
// loops.
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
  auto iterator = at::TensorIteratorConfig()
                      .set_check_mem_overlap(result.defined())
                      .add_output(result)
                      .add_const_input(self)
                      .add_const_input(other)
                      .build();
  if (iterator.ndim() > kMostDims)
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

// ---- Sums ----

// ATen sums rows of at least so many bytes in vectors, on processors with longer ones, too
// (SumKernel.cpp).
constexpr int64_t kBytesOfVector = 32;

// Up to so many elements, ATen does not take a sum apart into pieces.
constexpr int64_t kMostInOrder = 16;
constexpr int64_t kMostInFour = 4 * kMostInOrder;

template <class Number>
constexpr int64_t kVectorLength = kBytesOfVector / static_cast<int64_t>(sizeof(Number));

// The sum of `Size` elements, or of any number if that is 0.
template <int Size, class Number>
ATEN_RECOMPUTE_INLINED Number sum_in_order(const Number* from, int64_t stride, int64_t any_size) {
  const auto size = Size > 0 ? Size : any_size;
  Number sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += from[i * stride];
  return sum;
}

// ATen's row_sum(): every fourth element goes to one of four partial sums.
template <int Size, class Number>
ATEN_RECOMPUTE_INLINED Number sum_in_four(const Number* from, int64_t stride, int64_t any_size) {
  const auto size = Size > 0 ? Size : any_size;
  std::array<Number, 4> sums{};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (int64_t k = 0; k < 4; ++k)
      sums[k] += from[(i + k) * stride];
  }
  for (; i < size; ++i)
    sums[0] += from[i * stride];
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

// The same for several rows that lie one after the other. They are added to `to`.
template <int64_t rows, class Number>
ATEN_RECOMPUTE_INLINED void sum_rows_in_order(const Number* from, int64_t stride, int64_t size,
                                              Number* to) {
  std::array<Number, rows> sums{};
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t row = 0; row < rows; ++row)
      sums[row] += from[i * stride + row];
  }
  for (int64_t row = 0; row < rows; ++row)
    to[row] += sums[row];
}

template <class Number>
ATEN_RECOMPUTE_INLINED void sum_rows_in_four(const Number* from, int64_t stride, int64_t size,
                                             Number* to) {
  constexpr auto rows = kVectorLength<Number>;
  std::array<std::array<Number, rows>, 4> sums{};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t row = 0; row < rows; ++row)
        sums[k][row] += from[(i + k) * stride + row];
    }
  }
  for (; i < size; ++i) {
    for (int64_t row = 0; row < rows; ++row)
      sums[0][row] += from[i * stride + row];
  }
  for (int64_t row = 0; row < rows; ++row)
    to[row] += ((sums[0][row] + sums[1][row]) + sums[2][row]) + sums[3][row];
}

// A row whose elements lie one after the other: whole vectors are summed, then what is left, and
// then the elements of the sum of vectors are added to that.
template <class Number>
ATEN_RECOMPUTE_INLINED void sum_in_vectors(const Number* from, int64_t size, Number* to) {
  constexpr auto lanes = kVectorLength<Number>;
  std::array<Number, lanes> vectors{};
  sum_rows_in_four(from, lanes, size / lanes, vectors.data());
  Number sum = 0;
  for (auto i = size / lanes * lanes; i < size; ++i)
    sum += from[i];
  for (const auto each : vectors)
    sum += each;
  *to += sum;
}

// The innermost two loops of a sum. The first one sums.
struct SumBlock {
  int64_t summed, rows;
  int64_t summed_stride, row_stride, result_stride;

  // ATen takes longer sums apart; nullopt.
  template <class Number>
  static std::optional<SumBlock> of(const Loops& loops) {
    const auto& result = loops.strides[0];
    const auto& from = loops.strides[1];
    // A single loop has the strides 0 of a second one.
    SumBlock block{loops.sizes[0], loops.sizes[1], from[0], from[1], result[1]};
    if (result[0] != 0 && result[1] == 0) {
      block = {loops.sizes[1], loops.sizes[0], from[1], from[0], result[0]};
    } else if (result[0] != 0) {
      return std::nullopt;
    }
    const auto most = block.num_in_order<Number>() > 0 ? kMostInOrder : kMostInFour;
    return block.summed <= most ? std::make_optional(block) : std::nullopt;
  }

  template <class Number>
  bool sums_vectors() const {
    return summed_stride == 1 && summed >= kVectorLength<Number>;
  }

  // The rows that are summed in order. The others are summed in four.
  template <class Number>
  int64_t num_in_order() const {
    if (sums_vectors<Number>())
      return 0;
    if (row_stride == 1 && rows >= kVectorLength<Number>)
      return rows / (4 * kVectorLength<Number>)*(4 * kVectorLength<Number>);
    return summed_stride < row_stride ? 0 : rows / 4 * 4;
  }
};

template <int Summed, class Number>
ATEN_RECOMPUTE_INLINED void sum_block(const Number* __restrict from, Number* __restrict to,
                                      SumBlock block) {
  // Up to three elements are summed in order by both.
  const auto num_in_order = block.summed < 4 ? block.rows : block.num_in_order<Number>();
  int64_t row = 0;
  if (block.row_stride == 1 && block.result_stride == 1) {
    constexpr auto rows = kVectorLength<Number>;
    for (; row + rows <= num_in_order; row += rows)
      sum_rows_in_order<rows>(from + row, block.summed_stride, block.summed, to + row);
    for (; row + 4 <= num_in_order; row += 4)
      sum_rows_in_order<4>(from + row, block.summed_stride, block.summed, to + row);
    for (; row >= num_in_order && row + rows <= block.rows; row += rows)
      sum_rows_in_four(from + row, block.summed_stride, block.summed, to + row);
  }
  // The compiler makes vectors of rows if it knows that the results are neighbors.
  if (block.result_stride == 1 && block.summed_stride == 1) {
    for (; row < num_in_order; ++row)
      to[row] += sum_in_order<Summed>(from + row * block.row_stride, 1, block.summed);
  }
  for (; row < num_in_order; ++row) {
    to[row * block.result_stride] +=
        sum_in_order<Summed>(from + row * block.row_stride, block.summed_stride, block.summed);
  }
  for (; row < block.rows; ++row) {
    to[row * block.result_stride] +=
        sum_in_four<Summed>(from + row * block.row_stride, block.summed_stride, block.summed);
  }
}

template <int Summed, class Number>
ATEN_RECOMPUTE_INLINED void sum_blocks(const Number* from, Number* to, const Loops& loops,
                                       const SumBlock& block, int64_t begin, int64_t end) {
  loops.for_each_block(begin, end, [&](const std::array<int64_t, 3>& offsets) {
    sum_block<Summed>(from + offsets[1], to + offsets[0], block);
  });
}

template <class Number>
ATEN_RECOMPUTE_INLINED void sum_all(const Number* from, Number* to, const Loops& loops,
                                    const SumBlock& block, int64_t begin, int64_t end) {
  if (block.sums_vectors<Number>()) {
    loops.for_each_block(begin, end, [&](const std::array<int64_t, 3>& offsets) {
      for (int64_t row = 0; row < block.rows; ++row) {
        sum_in_vectors(from + offsets[1] + row * block.row_stride, block.summed,
                       to + offsets[0] + row * block.result_stride);
      }
    });
    return;
  }
  switch (block.summed) {
    case 2:
      return sum_blocks<2>(from, to, loops, block, begin, end);
    case 3:
      return sum_blocks<3>(from, to, loops, block, begin, end);
    case 5:
      return sum_blocks<5>(from, to, loops, block, begin, end);
    case 8:
      return sum_blocks<8>(from, to, loops, block, begin, end);
    default:
      return sum_blocks<0>(from, to, loops, block, begin, end);
  }
}

ATEN_RECOMPUTE_VECTORIZED
void sum_floats(const float* from, float* to, const Loops& loops, const SumBlock& block,
                int64_t begin, int64_t end) {
  sum_all(from, to, loops, block, begin, end);
}

ATEN_RECOMPUTE_VECTORIZED
void sum_doubles(const double* from, double* to, const Loops& loops, const SumBlock& block,
                 int64_t begin, int64_t end) {
  sum_all(from, to, loops, block, begin, end);
}

template <class Number, class Range>
void sum(const at::TensorIteratorBase& iterator, const Loops& loops, const SumBlock& block,
         const Range& range) {
  const auto* from = static_cast<const Number*>(iterator.data_ptr(1));
  auto* to = static_cast<Number*>(iterator.data_ptr(0));
  at::parallel_for(0, loops.num_blocks, std::max<int64_t>(1, GRAIN_SIZE / loops.block_size()),
                   [&](int64_t begin, int64_t end) { range(from, to, loops, block, begin, end); });
}

// Returns whether ATen, which may take the tensor apart for its threads, leaves the two innermost
// loops together.
bool keeps_blocks(const Loops& loops, int64_t num_elements) {
  const auto num_threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return num_elements < GRAIN_SIZE || num_threads == 1 ||
         (loops.num_dims > 2 && loops.sizes[loops.num_dims - 1] >= num_threads);
}

// Returns the sum over the dimensions in which `sizes`, of the same rank, is 1; nullopt if ATen
// takes it apart.
std::optional<Tensor> sum_short_rows(const Tensor& tensor, at::IntArrayRef sizes) {
  Tensor result = at::detail::empty_cpu(sizes, tensor.scalar_type());
  std::memset(result.mutable_data_ptr(), 0, result.nbytes());
  at::DimVector strides(result.strides());
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 1)
      strides[dim] = 0;
  }
  auto viewed = at::native::as_strided_tensorimpl(result, sizes, strides);
  const auto iterator = at::TensorIterator::reduce_op(viewed, tensor);
  if (iterator.ndim() > kMostDims || iterator.ndim() == 0)
    return std::nullopt;
  const Loops loops(iterator);
  for (int64_t dim = 2; dim < loops.num_dims; ++dim) {
    if (loops.strides[0][dim] == 0)
      return std::nullopt;
  }
  const auto block =
      tensor.scalar_type() == at::kFloat ? SumBlock::of<float>(loops) : SumBlock::of<double>(loops);
  if (!block || !keeps_blocks(loops, tensor.numel()))
    return std::nullopt;
  if (tensor.scalar_type() == at::kFloat)
    sum<float>(iterator, loops, *block, &sum_floats);
  else
    sum<double>(iterator, loops, *block, &sum_doubles);
  return result;
}

// Returns whether this processor and version of ATen give the bits of sum_short_rows().
bool has_sums_of_aten() {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto tensor = at::arange(1, 7 * 6 * 15 + 1, type).sin_();
    const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> sums{
        {{42, 15}, {42, 1}},      {{15, 42}, {15, 1}},       {{10, 63}, {10, 1}},
        {{42, 5, 3}, {42, 1, 3}}, {{18, 7, 5}, {18, 1, 5}},  {{30, 3, 7}, {30, 1, 7}},
        {{10, 9, 7}, {10, 9, 1}}, {{21, 6, 5}, {21, 1, 1}},  {{5, 14, 9}, {5, 1, 9}},
        {{3, 6, 35}, {3, 1, 35}}, {{2, 15, 21}, {2, 1, 21}}, {{2, 63, 5}, {2, 1, 5}}};
    for (const auto& [from, to] : sums) {
      const auto operand = tensor.view(from);
      const auto own = sum_short_rows(operand, to);
      if (own && !own->equal(at::sum_to(operand, to)))
        return false;
    }
  }
  return true;
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

Tensor sum_to(Tensor tensor, at::IntArrayRef sizes) {
  if (std::ssize(sizes) > tensor.dim() || !is_plain_operand(tensor) || tensor.numel() == 0 ||
      tensor.sizes() == sizes)
    return at::sum_to(std::move(tensor), sizes);
  static const bool is_exact = has_sums_of_aten();
  at::DimVector kept(static_cast<size_t>(tensor.dim()), 1);
  std::copy_backward(sizes.begin(), sizes.end(), kept.end());
  auto result = is_exact ? sum_short_rows(tensor, kept) : std::nullopt;
  if (!result)
    return at::sum_to(std::move(tensor), sizes);
  return std::ssize(sizes) == tensor.dim() ? *result : aten_recompute::reshape(*result, sizes);
}

}  // namespace aten_recompute
