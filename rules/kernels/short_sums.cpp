#include "rules/kernels/short_sums.h"

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

#include "rules/kernels/loops.h"
#include "rules/kernels/parallel.h"
#include "rules/kernels/plain_operands.h"
#include "rules/kernels/short_rows.h"
#include "rules/kernels/vectorized.h"
#include "rules/kernels/views.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using at::internal::GRAIN_SIZE;

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
  constexpr auto kRows = kVectorLength<Number>;
  std::array<std::array<Number, kRows>, 4> sums{};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t row = 0; row < kRows; ++row)
        sums[k][row] += from[(i + k) * stride + row];
    }
  }
  for (; i < size; ++i) {
    for (int64_t row = 0; row < kRows; ++row)
      sums[0][row] += from[i * stride + row];
  }
  for (int64_t row = 0; row < kRows; ++row)
    to[row] += ((sums[0][row] + sums[1][row]) + sums[2][row]) + sums[3][row];
}

// A row whose elements lie one after the other: whole vectors are summed, then what is left, and
// then the elements of the sum of vectors are added to that.
template <class Number>
ATEN_RECOMPUTE_INLINED void sum_in_vectors(const Number* from, int64_t size, Number* to) {
  constexpr auto kLanes = kVectorLength<Number>;
  std::array<Number, kLanes> vectors{};
  sum_rows_in_four(from, kLanes, size / kLanes, vectors.data());
  Number sum = 0;
  for (auto i = size / kLanes * kLanes; i < size; ++i)
    sum += from[i];
  for (const auto each : vectors)
    sum += each;
  *to += sum;
}

// The innermost two loops of a sum. The first one sums.
struct SumBlock {
  int64_t summed, rows;
  int64_t summed_stride, row_stride, result_stride;
  int summed_dim;  // 0 or 1

  // ATen takes longer sums apart; nullopt.
  template <class Number>
  static std::optional<SumBlock> of(const Loops& loops) {
    const auto& result = loops.strides[0];
    const auto& from = loops.strides[1];
    // A single loop has the strides 0 of a second one.
    SumBlock block{loops.sizes[0], loops.sizes[1], from[0], from[1], result[1], 0};
    if (result[0] != 0 && result[1] == 0) {
      block = {loops.sizes[1], loops.sizes[0], from[1], from[0], result[0], 1};
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
    constexpr auto kRows = kVectorLength<Number>;
    for (; row + kRows <= num_in_order; row += kRows)
      sum_rows_in_order<kRows>(from + row, block.summed_stride, block.summed, to + row);
    for (; row + 4 <= num_in_order; row += 4)
      sum_rows_in_order<4>(from + row, block.summed_stride, block.summed, to + row);
    for (; row >= num_in_order && row + kRows <= block.rows; row += kRows)
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

// The result of a sum, zeros, and a view of it without strides in dimensions that are summed over.
struct SumResult {
  Tensor tensor;
  Tensor viewed;

  SumResult(const Tensor& summed, at::IntArrayRef sizes)
      : tensor(at::detail::empty_cpu(sizes, summed.scalar_type())) {
    std::memset(tensor.mutable_data_ptr(), 0, tensor.nbytes());
    at::DimVector strides(tensor.strides());
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] != summed.size(static_cast<int64_t>(dim)))
        strides[dim] = 0;
    }
    viewed = at::native::as_strided_tensorimpl(tensor, sizes, strides);
  }
};

// Returns the innermost loops of ATen's sum; nullopt where ATen takes it apart.
std::optional<SumBlock> block_of(const Loops& loops, const Tensor& tensor) {
  for (int64_t dim = 2; dim < loops.num_dims; ++dim) {
    if (loops.strides[0][dim] == 0)
      return std::nullopt;
  }
  if (!keeps_blocks(loops, tensor.numel()))
    return std::nullopt;
  return tensor.scalar_type() == at::kFloat ? SumBlock::of<float>(loops)
                                            : SumBlock::of<double>(loops);
}

bool has_few_dims(const at::TensorIteratorBase& iterator) {
  return iterator.ndim() > 0 && iterator.ndim() <= kMostDims;
}

// Returns the sum over the dimensions in which `sizes`, of the same rank, is 1; nullopt if ATen
// takes it apart.
std::optional<Tensor> sum_short_rows(const Tensor& tensor, at::IntArrayRef sizes) {
  SumResult result(tensor, sizes);
  const auto iterator = at::TensorIterator::reduce_op(result.viewed, tensor);
  if (!has_few_dims(iterator))
    return std::nullopt;
  const Loops loops(iterator);
  const auto block = block_of(loops, tensor);
  if (!block)
    return std::nullopt;
  if (tensor.scalar_type() == at::kFloat)
    sum<float>(iterator, loops, *block, &sum_floats);
  else
    sum<double>(iterator, loops, *block, &sum_doubles);
  return result.tensor;
}

// ---- Sums of products ----

template <int Size, class Number>
ATEN_RECOMPUTE_INLINED Number products_in_order(const Number* left, int64_t left_stride,
                                                const Number* right, int64_t right_stride,
                                                int64_t any_size) {
  const auto size = Size > 0 ? Size : any_size;
  Number sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += left[i * left_stride] * right[i * right_stride];
  return sum;
}

template <int Size, class Number>
ATEN_RECOMPUTE_INLINED Number products_in_four(const Number* left, int64_t left_stride,
                                               const Number* right, int64_t right_stride,
                                               int64_t any_size) {
  const auto size = Size > 0 ? Size : any_size;
  std::array<Number, 4> sums{};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (int64_t k = 0; k < 4; ++k)
      sums[k] += left[(i + k) * left_stride] * right[(i + k) * right_stride];
  }
  for (; i < size; ++i)
    sums[0] += left[i * left_stride] * right[i * right_stride];
  return ((sums[0] + sums[1]) + sums[2]) + sums[3];
}

// Adds sum_in_vectors() of the products of two rows to `to`.
template <class Number>
ATEN_RECOMPUTE_INLINED void products_in_vectors(const Number* left, const Number* right,
                                                int64_t right_stride, int64_t size, Number* to) {
  std::array<Number, kMostInFour> products;
  for (int64_t i = 0; i < size; ++i)
    products[i] = left[i] * right[i * right_stride];
  sum_in_vectors(products.data(), size, to);
}

template <int Summed, class Number>
ATEN_RECOMPUTE_INLINED void sum_product_blocks(const Number* left, const Number* right,
                                               Number* result, const Loops& loops,
                                               const SumBlock& block, int64_t begin, int64_t end) {
  const auto num_in_order = block.summed < 4 ? block.rows : block.num_in_order<Number>();
  const auto right_summed = loops.strides[2][block.summed_dim];
  const auto right_row = loops.strides[2][1 - block.summed_dim];
  loops.for_each_block(begin, end, [&](const std::array<int64_t, 3>& offsets) {
    const auto* __restrict a = left + offsets[1];
    const auto* __restrict b = right + offsets[2];
    auto* __restrict to = result + offsets[0];
    int64_t row = 0;
    for (; row < num_in_order; ++row) {
      to[row * block.result_stride] +=
          products_in_order<Summed>(a + row * block.row_stride, block.summed_stride,
                                    b + row * right_row, right_summed, block.summed);
    }
    for (; row < block.rows; ++row) {
      to[row * block.result_stride] +=
          products_in_four<Summed>(a + row * block.row_stride, block.summed_stride,
                                   b + row * right_row, right_summed, block.summed);
    }
  });
}

template <class Number>
ATEN_RECOMPUTE_INLINED void sum_all_products(const Number* left, const Number* right,
                                             Number* result, const Loops& loops,
                                             const SumBlock& block, int64_t begin, int64_t end) {
  if (block.sums_vectors<Number>()) {
    const auto right_summed = loops.strides[2][block.summed_dim];
    const auto right_row = loops.strides[2][1 - block.summed_dim];
    loops.for_each_block(begin, end, [&](const std::array<int64_t, 3>& offsets) {
      for (int64_t row = 0; row < block.rows; ++row) {
        products_in_vectors(left + offsets[1] + row * block.row_stride,
                            right + offsets[2] + row * right_row, right_summed, block.summed,
                            result + offsets[0] + row * block.result_stride);
      }
    });
    return;
  }
  switch (block.summed) {
    case 2:
      return sum_product_blocks<2>(left, right, result, loops, block, begin, end);
    case 3:
      return sum_product_blocks<3>(left, right, result, loops, block, begin, end);
    case 5:
      return sum_product_blocks<5>(left, right, result, loops, block, begin, end);
    case 8:
      return sum_product_blocks<8>(left, right, result, loops, block, begin, end);
    default:
      return sum_product_blocks<0>(left, right, result, loops, block, begin, end);
  }
}

ATEN_RECOMPUTE_VECTORIZED
void sum_float_products(const float* left, const float* right, float* result, const Loops& loops,
                        const SumBlock& block, int64_t begin, int64_t end) {
  sum_all_products(left, right, result, loops, block, begin, end);
}

ATEN_RECOMPUTE_VECTORIZED
void sum_double_products(const double* left, const double* right, double* result,
                         const Loops& loops, const SumBlock& block, int64_t begin, int64_t end) {
  sum_all_products(left, right, result, loops, block, begin, end);
}

template <class Number, class Range>
void sum_products(const at::TensorIteratorBase& iterator, const Loops& loops, const SumBlock& block,
                  const Range& range) {
  const auto* left = static_cast<const Number*>(iterator.data_ptr(1));
  const auto* right = static_cast<const Number*>(iterator.data_ptr(2));
  auto* to = static_cast<Number*>(iterator.data_ptr(0));
  at::parallel_for(
      0, loops.num_blocks, std::max<int64_t>(1, GRAIN_SIZE / loops.block_size()),
      [&](int64_t begin, int64_t end) { range(left, right, to, loops, block, begin, end); });
}

// Returns whether the result and the tensor that is summed are walked through in the same way. Only
// blocks may lie further apart in one tensor than in the other.
bool have_same_loops(const Loops& a, const Loops& b) {
  return a.num_dims == b.num_dims && a.sizes == b.sizes && a.strides[0] == b.strides[0] &&
         std::equal(a.strides[1].begin(), a.strides[1].begin() + 2, b.strides[1].begin());
}

// Returns whether elements lie in the order of a contiguous tensor, perhaps with others between
// them.
bool is_in_order(const Tensor& tensor) {
  int64_t least = 1;
  for (auto dim = tensor.dim(); dim-- > 0;) {
    if (tensor.size(dim) == 1)
      continue;
    if (tensor.stride(dim) < least)
      return false;
    least = tensor.stride(dim) * tensor.size(dim);
  }
  return true;
}

// Returns a contiguous tensor of the same sizes, of which nothing reads elements.
Tensor contiguous_stand_in(const Tensor& tensor) {
  return LazyView(tensor.sizes(), tensor).tensor();
}

// Returns the sum of a product over the dimensions in which `sizes` is 1; nullopt if ATen takes it
// apart. `tensor` has the sizes of the product, which is contiguous.
std::optional<Tensor> sum_short_rows_of_product(const Tensor& tensor, const Tensor& other,
                                                at::IntArrayRef sizes) {
  SumResult result(tensor, sizes);
  const auto iterator = at::TensorIteratorConfig()
                            .set_check_mem_overlap(false)
                            .is_reduction(true)
                            .resize_outputs(false)
                            .add_output(result.viewed)
                            .add_const_input(tensor)
                            .add_const_input(other)
                            .build();
  const auto of_sum = at::TensorIterator::reduce_op(
      result.viewed, tensor.is_contiguous() ? tensor : contiguous_stand_in(tensor));
  if (!has_few_dims(iterator) || !has_few_dims(of_sum))
    return std::nullopt;
  const Loops loops(iterator);
  const auto block = block_of(loops, tensor);
  // Up to three products are added in order, whatever other loops there are.
  const bool adds_in_order = tensor.numel() <= 3 * result.tensor.numel();
  if (!block || (!adds_in_order && !have_same_loops(loops, Loops(of_sum))))
    return std::nullopt;
  if (tensor.scalar_type() == at::kFloat)
    sum_products<float>(iterator, loops, *block, &sum_float_products);
  else
    sum_products<double>(iterator, loops, *block, &sum_double_products);
  return result.tensor;
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

// The same of sum_short_rows_of_product(): a compiler may have made one rounding of a product and
// its sum.
bool has_sums_of_products() {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto numbers = at::arange(1, 7 * 6 * 15 + 1, type).sin_();
    for (const auto& tensor : {numbers.view({14, 9, 5}), numbers.view({14, 9, 5}).narrow(1, 2, 6),
                               numbers.view({10, 3, 21})}) {
      const auto other = at::arange(1, tensor[0].numel() + 1, type).cos_().view_as(tensor[0]);
      const auto rows = tensor.size(0);
      for (const auto& to :
           {std::vector<int64_t>{rows, tensor.size(1), 1}, {rows, 1, tensor.size(2)}}) {
        const auto own = sum_short_rows_of_product(tensor, other.unsqueeze(0), to);
        if (own && !own->equal(at::sum_to(at::mul(tensor, other), to)))
          return false;
      }
    }
  }
  return true;
}

bool sums_are_exact() {
  static const bool result = has_sums_of_aten();
  return result;
}

}  // namespace

Tensor sum_product_to(const Tensor& tensor, const Tensor& other, at::IntArrayRef sizes) {
  if (std::ssize(sizes) == tensor.dim() && other.dim() == tensor.dim() &&
      is_plain_operand(tensor) && is_plain_operand(other) &&
      tensor.scalar_type() == other.scalar_type() && tensor.numel() > 0 && is_in_order(tensor) &&
      tensor.sizes() != sizes && at::is_expandable_to(other.sizes(), tensor.sizes())) {
    static const bool is_exact = sums_are_exact() && has_sums_of_products();
    const auto result = is_exact ? sum_short_rows_of_product(tensor, other, sizes) : std::nullopt;
    if (result)
      return *result;
  }
  return aten_recompute::sum_to(aten_recompute::mul(tensor, other), sizes);
}

Tensor sum_to(Tensor tensor, at::IntArrayRef sizes) {
  if (std::ssize(sizes) > tensor.dim() || !is_plain_operand(tensor) || tensor.numel() == 0 ||
      tensor.sizes() == sizes)
    return at::sum_to(std::move(tensor), sizes);
  at::DimVector kept(static_cast<size_t>(tensor.dim()), 1);
  std::copy_backward(sizes.begin(), sizes.end(), kept.end());
  const auto result = sums_are_exact() ? sum_short_rows(tensor, kept) : std::nullopt;
  if (!result)
    return at::sum_to(std::move(tensor), sizes);
  return std::ssize(sizes) == tensor.dim() ? *result : aten_recompute::reshape(*result, sizes);
}

}  // namespace aten_recompute
