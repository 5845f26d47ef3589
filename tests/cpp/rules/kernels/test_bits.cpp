#include "rules/kernels/bits.h"

#include <ATen/ATen.h>

#include <cstring>
#include <limits>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using Bits = test::TorchTest;

// Compares bytes, so that zeros keep their sign and NaN equals itself.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

at::Tensor random_mask(at::IntArrayRef size) {
  return at::rand(size) > 0.4;
}

void expect_round_trip(const at::Tensor& mask) {
  const auto sizes = mask.sizes().vec();
  const auto strides = mask.strides().vec();
  const auto bits = pack_bits(mask);
  EXPECT_EQ(bits.numel(), (mask.numel() + 7) / 8);
  EXPECT_EQ(bits.scalar_type(), at::kByte);
  const auto again = unpack_bits(bits, sizes, strides);
  EXPECT_TRUE(at::equal(again, mask));
  EXPECT_TRUE(again.is_non_overlapping_and_dense());
  EXPECT_EQ(again.strides(), at::empty_like(mask).strides());
  // Other devices use other kernels for the same layout.
  EXPECT_TRUE(at::equal(detail::pack_bits_by_operators(mask), bits));
  EXPECT_TRUE(same_bits(detail::unpack_bits_by_operators(bits, sizes, strides), again));
}

TEST_F(Bits, AMaskComesBackAsItWas) {
  for (const int64_t size : {0, 1, 7, 8, 9, 255, 256, 257, 1037, 200003})
    expect_round_trip(random_mask({size}));
  expect_round_trip(random_mask({}));
  expect_round_trip(random_mask({5, 7}).t());
  expect_round_trip(random_mask({2, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_F(Bits, AMaskWithGapsComesBackDense) {
  expect_round_trip(random_mask({6, 10}).slice(1, 0, 10, 3));
  expect_round_trip(random_mask({6, 10}).t().slice(0, 2, 9));
  expect_round_trip(random_mask({6, 1}).expand({6, 5}));
}

TEST_F(Bits, ElementIIsBitIOfItsByte) {
  auto mask = at::zeros({20}, at::kBool);
  mask[0] = true;
  mask[3] = true;
  mask[9] = true;
  mask[19] = true;
  EXPECT_TRUE(at::equal(pack_bits(mask), at::tensor({0b1001, 0b10, 0b1000}, at::kByte)));
}

TEST_F(Bits, BitsOfAnotherSizeAreRefused) {
  const auto bits = pack_bits(random_mask({20}));
  EXPECT_THROW(unpack_bits(bits, {30}, {1}), c10::Error);
  EXPECT_THROW(threshold_backward_bits(at::randn({30}), bits, {1}), c10::Error);
  EXPECT_THROW(pack_bits(at::randn({20})), c10::Error);
}

// Possible results of relu, and further values.
at::Tensor results(at::IntArrayRef size, at::ScalarType dtype) {
  auto tensor = at::randn(size).to(dtype);
  auto flat = tensor.view(-1);
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto infinity = std::numeric_limits<double>::infinity();
  const double special[] = {0., -0., nan, -nan, infinity, -infinity, 6e-8, -6e-8, 1e-40, 65504.};
  for (int64_t i = 0; i < 10 && i < flat.numel(); ++i)
    flat[i] = special[i];
  return tensor;
}

TEST_F(Bits, TheGradientOfReluEqualsThresholdBackward) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const auto& result :
         {results({1037}, dtype), results({3}, dtype), results({300, 401}, dtype),
          results({401, 300}, dtype).t(),
          results({2, 8, 5, 7}, dtype).contiguous(at::MemoryFormat::ChannelsLast),
          results({30, 40}, dtype).slice(1, 1, 40, 2)}) {
      const auto bits = positive_bits(result);
      EXPECT_EQ(bits.numel(), (result.numel() + 7) / 8);
      // The gradient has the strides of the result, or others.
      for (const auto& grad :
           {at::randn_like(result), at::randn(result.sizes()).to(dtype),
            at::randn(result.sizes()).to(dtype).mul_(std::numeric_limits<double>::infinity())}) {
        const auto expected = at::threshold_backward(grad, result, 0);
        EXPECT_TRUE(
            same_bits(threshold_backward_bits(grad, bits, result.strides().vec()), expected))
            << dtype << " " << result.strides();
      }
    }
  }
}

TEST_F(Bits, IntegersGiveTheSameGradient) {
  const auto result = at::randint(-3, 3, {37}, at::kInt);
  const auto grad = at::randint(-3, 3, {37}, at::kInt);
  EXPECT_TRUE(at::equal(threshold_backward_bits(grad, positive_bits(result), {1}),
                        at::threshold_backward(grad, result, 0)));
}

}  // namespace
}  // namespace aten_recompute
