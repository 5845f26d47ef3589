#include "rules/kernels/bits.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/parallel.h"
#include "rules/kernels/vectorized.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using Sizes = std::vector<int64_t>;

// Number of elements per step of a loop: a multiple of 8, and large enough for wide registers.
constexpr int64_t kBlock = 256;

int64_t bytes_for(int64_t count) {
  return (count + 7) / 8;
}

// ---- eight elements at a time ----

uint64_t load_eight(const uint8_t* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, 8);
  if constexpr (std::endian::native == std::endian::big)
    word = __builtin_bswap64(word);
  return word;
}

void store_eight(uint8_t* bytes, uint64_t word) {
  if constexpr (std::endian::native == std::endian::big)
    word = __builtin_bswap64(word);
  std::memcpy(bytes, &word, 8);
}

// The bytes of `word` are 0 or 1. The factor moves byte i to bit 56 + i of the product; no two of
// the partial products share a bit.
uint8_t packed(uint64_t word) {
  return static_cast<uint8_t>((word * 0x0102040810204080ULL) >> 56);
}

uint64_t unpacked(uint8_t bits) {
  // Byte i keeps only bit i. Adding 0x7f carries it, wherever it is, to the highest bit of the
  // byte.
  const uint64_t spread = (bits * 0x0101010101010101ULL) & 0x8040201008040201ULL;
  return ((spread + 0x7f7f7f7f7f7f7f7fULL) >> 7) & 0x0101010101010101ULL;
}

// `mask` has `count` bytes of 0 or 1; `bits` has space for bytes_for(count) bytes.
ATEN_RECOMPUTE_VECTORIZED
void pack_range(const uint8_t* mask, uint8_t* bits, int64_t count) {
  const auto whole = count / 8;
  for (int64_t i = 0; i < whole; ++i)
    bits[i] = packed(load_eight(mask + 8 * i));
  if (count % 8 != 0) {
    uint8_t rest[8] = {};
    std::memcpy(rest, mask + 8 * whole, static_cast<size_t>(count % 8));
    bits[whole] = packed(load_eight(rest));
  }
}

ATEN_RECOMPUTE_VECTORIZED
void unpack_range(const uint8_t* bits, uint8_t* mask, int64_t count) {
  const auto whole = count / 8;
  for (int64_t i = 0; i < whole; ++i)
    store_eight(mask + 8 * i, unpacked(bits[i]));
  if (count % 8 != 0) {
    uint8_t rest[8];
    store_eight(rest, unpacked(bits[whole]));
    std::memcpy(mask + 8 * whole, rest, static_cast<size_t>(count % 8));
  }
}

// ---- comparisons ----

// Compares as ATen's kernel does: not (x <= 0), which also holds for NaN.
ATEN_RECOMPUTE_VECTORIZED
void compare_range(const float* x, uint8_t* mask, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    mask[i] = x[i] <= 0.0F ? 0 : 1;
}

ATEN_RECOMPUTE_VECTORIZED
void compare_range(const double* x, uint8_t* mask, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    mask[i] = x[i] <= 0.0 ? 0 : 1;
}

ATEN_RECOMPUTE_VECTORIZED
void compare_range(const at::BFloat16* x, uint8_t* mask, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    mask[i] = static_cast<float>(x[i]) <= 0.0F ? 0 : 1;
}

// Compares the bits of the number, because not every processor has an instruction for halves: 1 to
// 0x7fff is positive or NaN, and above 0xfc00 it is a negative NaN.
ATEN_RECOMPUTE_VECTORIZED
void compare_range(const at::Half* x, uint8_t* mask, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t word = x[i].x;
    mask[i] = (static_cast<uint16_t>(word - 1) < 0x7fff) | (word > 0xfc00) ? 1 : 0;
  }
}

// ---- selections, on elements as unsigned integers ----

// The analyzer does not see that the mask was unpacked before.
// NOLINTBEGIN(clang-analyzer-core.UndefinedBinaryOperatorResult)
ATEN_RECOMPUTE_VECTORIZED
void select_range(const uint8_t* mask, const uint16_t* grad, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = grad[i] & static_cast<uint16_t>(-static_cast<uint16_t>(mask[i]));
}

ATEN_RECOMPUTE_VECTORIZED
void select_range(const uint8_t* mask, const uint32_t* grad, uint32_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = grad[i] & -static_cast<uint32_t>(mask[i]);
}

ATEN_RECOMPUTE_VECTORIZED
void select_range(const uint8_t* mask, const uint64_t* grad, uint64_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = grad[i] & -static_cast<uint64_t>(mask[i]);
}
// NOLINTEND(clang-analyzer-core.UndefinedBinaryOperatorResult)

// Calls function(first element, number of elements) for blocks that begin with a whole byte of
// bits.
template <class Function>
void for_each_block(int64_t count, const Function& function) {
  const auto blocks = (count + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, at::internal::GRAIN_SIZE / kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      function(i * kBlock, std::min(kBlock, count - i * kBlock));
  });
}

// ---- layouts ----

Tensor dense(const Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor : tensor.clone();
}

Tensor empty_dense(const Sizes& size, const Sizes& stride, at::TensorOptions options) {
  auto tensor = at::empty_strided(size, stride, options);
  return tensor.is_non_overlapping_and_dense()
             ? tensor
             : at::empty_strided(size, at::infer_dense_strides(size, stride), options);
}

void check_bits(const Tensor& bits, int64_t count) {
  TORCH_CHECK(
      bits.scalar_type() == at::kByte && bits.is_contiguous() && bits.numel() == bytes_for(count),
      "expected ", bytes_for(count), " bytes for ", count, " bits, but got ", bits.numel(), " of ",
      bits.scalar_type());
}

Tensor elements(const Tensor& dense_tensor) {
  return dense_tensor.as_strided({dense_tensor.numel()}, {1});
}

Tensor bit_values(const Tensor& like) {
  return at::bitwise_left_shift(at::ones({8}, like.options().dtype(at::kByte)),
                                at::arange(8, like.options().dtype(at::kByte)));
}

// ---- relu ----

bool is_supported(const Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return tensor.device().is_cpu() &&
         (type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf);
}

template <class Element>
void compare(const Tensor& x, uint8_t* bits) {
  const auto* from = x.const_data_ptr<Element>();
  for_each_block(x.numel(), [&](int64_t first, int64_t count) {
    uint8_t mask[kBlock];
    compare_range(from + first, mask, count);
    pack_range(mask, bits + first / 8, count);
  });
}

template <class Word>
void select(const Tensor& grad, const uint8_t* bits, const Tensor& output) {
  const auto* from = static_cast<const Word*>(grad.const_data_ptr());
  auto* to = static_cast<Word*>(output.mutable_data_ptr());
  for_each_block(grad.numel(), [&](int64_t first, int64_t count) {
    uint8_t mask[kBlock];
    unpack_range(bits + first / 8, mask, count);
    select_range(mask, from + first, to + first, count);
  });
}

// `output` has the layout of `grad` and of the bits, and may be `grad`.
void select_into(const Tensor& output, const Tensor& grad, const Tensor& bits) {
  const auto* from = bits.const_data_ptr<uint8_t>();
  switch (grad.element_size()) {
    case 2:
      return select<uint16_t>(grad, from, output);
    case 4:
      return select<uint32_t>(grad, from, output);
    default:
      return select<uint64_t>(grad, from, output);
  }
}

bool has_layout_of_bits(const Tensor& grad, const Sizes& stride) {
  return is_supported(grad) && grad.strides() == at::IntArrayRef(stride) &&
         grad.is_non_overlapping_and_dense();
}

// Called on the last use of grad (runtime/in_place.h).
Tensor threshold_backward_bits_in_place(Tensor grad, Tensor bits, Sizes stride) {
  if (!has_layout_of_bits(grad, stride))
    return grad.copy_(threshold_backward_bits(grad, bits, stride));
  check_bits(bits, grad.numel());
  select_into(grad, grad, bits);
  return grad;
}

}  // namespace

namespace detail {

Tensor pack_bits_by_operators(const Tensor& mask) {
  const auto all = dense(mask);
  const auto bytes = at::constant_pad_nd(elements(all).to(at::kByte),
                                         {0, bytes_for(all.numel()) * 8 - all.numel()});
  return (bytes.view({-1, 8}) * bit_values(mask)).sum(1, /*keepdim=*/false, at::kByte);
}

Tensor unpack_bits_by_operators(const Tensor& bits, const Sizes& size, const Sizes& stride) {
  auto mask = empty_dense(size, stride, bits.options().dtype(at::kBool));
  check_bits(bits, mask.numel());
  const auto each = at::bitwise_and(bits.unsqueeze(1), bit_values(bits)).ne(0);
  elements(mask).copy_(each.view(-1).narrow(0, 0, mask.numel()));
  return mask;
}

}  // namespace detail

Tensor pack_bits(Tensor mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "expected a mask of bool, but got ",
              mask.scalar_type());
  if (!mask.device().is_cpu())
    return detail::pack_bits_by_operators(mask);
  const auto all = dense(mask);
  auto bits = at::empty({bytes_for(all.numel())}, mask.options().dtype(at::kByte));
  const auto* from = static_cast<const uint8_t*>(all.const_data_ptr());
  auto* to = bits.mutable_data_ptr<uint8_t>();
  for_each_block(all.numel(), [&](int64_t first, int64_t count) {
    pack_range(from + first, to + first / 8, count);
  });
  return bits;
}

Tensor unpack_bits(Tensor bits, Sizes size, Sizes stride) {
  if (!bits.device().is_cpu())
    return detail::unpack_bits_by_operators(bits, size, stride);
  auto mask = empty_dense(size, stride, bits.options().dtype(at::kBool));
  check_bits(bits, mask.numel());
  const auto* from = bits.const_data_ptr<uint8_t>();
  auto* to = static_cast<uint8_t*>(mask.mutable_data_ptr());
  for_each_block(mask.numel(), [&](int64_t first, int64_t count) {
    unpack_range(from + first / 8, to + first, count);
  });
  return mask;
}

Tensor positive_bits(Tensor result) {
  if (!is_supported(result))
    return pack_bits(at::logical_not(at::le(result, 0)));
  const auto all = dense(result);
  auto bits = at::empty({bytes_for(all.numel())}, result.options().dtype(at::kByte));
  auto* to = bits.mutable_data_ptr<uint8_t>();
  switch (all.scalar_type()) {
    case at::kFloat:
      compare<float>(all, to);
      break;
    case at::kDouble:
      compare<double>(all, to);
      break;
    case at::kBFloat16:
      compare<at::BFloat16>(all, to);
      break;
    default:
      compare<at::Half>(all, to);
  }
  return bits;
}

Tensor threshold_backward_bits(Tensor grad, Tensor bits, Sizes stride) {
  if (!has_layout_of_bits(grad, stride)) {
    const auto passes = unpack_bits(std::move(bits), grad.sizes().vec(), std::move(stride));
    return at::threshold_backward(grad, passes.to(grad.scalar_type()), 0);
  }
  check_bits(bits, grad.numel());
  auto output = at::empty_like(grad);
  select_into(output, grad, bits);
  return output;
}

void register_bits_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::pack_bits(Tensor mask) -> Tensor", &pack_bits),
      pure_operator("aten_recompute::unpack_bits(Tensor bits, int[] size, int[] stride) -> Tensor",
                    &unpack_bits),
      pure_operator("aten_recompute::positive_bits(Tensor result) -> Tensor", &positive_bits),
      pure_operator("aten_recompute::threshold_backward_bits(Tensor grad, Tensor bits, "
                    "int[] stride) -> Tensor",
                    &threshold_backward_bits),
      in_place_operator("aten_recompute::threshold_backward_bits_(Tensor(a!) grad, Tensor bits, "
                        "int[] stride) -> Tensor(a!)",
                        &threshold_backward_bits_in_place),
  });
}

}  // namespace aten_recompute
