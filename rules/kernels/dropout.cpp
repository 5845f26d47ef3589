// Dropouts with a bool mask in place of ATen's noise. It gives the same numbers and uses a quarter
// of the bytes.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/parallel.h"
#include "rules/kernels/random_mask.h"
#include "rules/kernels/vectorized.h"

namespace aten_recompute {
namespace {

using at::Tensor;

// Computes x * noise, where noise is 0 or `scale`. Multiplying by 0 keeps the sign of zeros, and
// NaN.
ATEN_RECOMPUTE_VECTORIZED
void multiply_range(const float* x, const uint8_t* mask, float scale, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = x[i] * (static_cast<float>(mask[i]) * scale);
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_range(const double* x, const uint8_t* mask, double scale, double* out,
                    int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = x[i] * (static_cast<double>(mask[i]) * scale);
}

ATEN_RECOMPUTE_VECTORIZED
void multiply_range(const at::BFloat16* x, const uint8_t* mask, at::BFloat16 scale,
                    at::BFloat16* out, int64_t count) {
  const auto factor = static_cast<float>(scale);
  for (int64_t i = 0; i < count; ++i)
    out[i] = at::BFloat16(static_cast<float>(x[i]) * (static_cast<float>(mask[i]) * factor));
}

template <class Scalar>
void multiply_range(const Scalar* x, const uint8_t* mask, Scalar scale, Scalar* out,
                    int64_t count) {
  const auto factor = static_cast<float>(scale);
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<Scalar>(static_cast<float>(x[i]) * (static_cast<float>(mask[i]) * factor));
}

// Returns one element of ATen's noise, computed by the same operators so that it is rounded in the
// same way.
Tensor noise_value(const Tensor& like, double p) {
  if (p == 1)
    return at::zeros({}, like.options());
  return at::ones({}, like.options()).div_(1 - p);
}

// Returns whether x and mask are on the CPU with elements in the same memory order, so that one
// loop can go through both.
bool has_layout_of(const Tensor& x, const Tensor& mask) {
  return x.device().is_cpu() && mask.device().is_cpu() && at::isFloatingType(x.scalar_type()) &&
         x.strides() == mask.strides() && x.sizes() == mask.sizes() &&
         x.is_non_overlapping_and_dense();
}

// `output` has the layout of x, and may be x.
void multiply_into(const Tensor& output, const Tensor& x, const Tensor& mask, const Tensor& scale) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "apply_dropout_mask", [&] {
        const auto* from = x.const_data_ptr<scalar_t>();
        const auto* keep = static_cast<const uint8_t*>(mask.const_data_ptr());
        auto* to = output.mutable_data_ptr<scalar_t>();
        const auto factor = *scale.const_data_ptr<scalar_t>();
        at::parallel_for(0, x.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
          multiply_range(from + begin, keep + begin, factor, to + begin, end - begin);
        });
      });
}

// Returns x * noise, where noise is `scale`, a tensor of one element, or 0.
Tensor masked(const Tensor& x, const Tensor& mask, const Tensor& scale) {
  if (!has_layout_of(x, mask))
    return x.mul(mask.to(x.scalar_type()).mul_(scale));
  auto output = at::empty_like(x);
  multiply_into(output, x, mask, scale);
  return output;
}

Tensor multiply_by_noise(Tensor x, Tensor mask, double p) {
  return masked(x, mask, noise_value(x, p));
}

// As the fused kernel of aten::dropout does on a GPU.
Tensor apply_dropout_mask(Tensor x, Tensor mask, double p) {
  if (!x.device().is_cpu() && x.sizes() == mask.sizes())
    return at::native_dropout_backward(x, mask, p == 1 ? 0.0 : 1.0 / (1.0 - p));
  return multiply_by_noise(x, mask, p);
}

// These are called on the last use of x (runtime/in_place.h).
Tensor multiply_by_noise_in_place(Tensor x, Tensor mask, double p) {
  if (!has_layout_of(x, mask))
    return x.copy_(multiply_by_noise(x, mask, p));
  multiply_into(x, x, mask, noise_value(x, p));
  return x;
}

Tensor apply_dropout_mask_in_place(Tensor x, Tensor mask, double p) {
  return x.is_cpu() ? multiply_by_noise_in_place(x, mask, p)
                    : x.copy_(apply_dropout_mask(x, mask, p));
}

// For graphs that run without a rule. Regions take the mask and its product instead.
Tensor dropout_in_place(Tensor x, double p, bool train) {
  auto copy = x.clone();
  return at::dropout_(copy, p, train);
}

void check_probability(double p) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
}

// Fills a bool mask with the numbers that ATen draws for a dropout of x. Returns the mask, or
// another one of the same sizes and strides.
Tensor drawn(Tensor mask, const Tensor& x, double p) {
  check_probability(p);
  if (p == 0 || x.numel() == 0)
    return mask.fill_(true);
  if (p == 1)
    return mask.fill_(false);
  return draw_random_mask(std::move(mask), x.scalar_type(), 1 - p);
}

Tensor empty_mask(const Tensor& x) {
  return at::empty_like(x, x.options().dtype(at::kBool));
}

Tensor dropout_mask(Tensor x, double p) {
  check_probability(p);
  if (!x.device().is_cpu() && x.numel() > 0 && p > 0 && p < 1) {
    // Only the fused kernel draws these numbers. Its output is computed again from the mask.
    return std::get<1>(at::native_dropout(x, p, /*train=*/true));
  }
  return drawn(empty_mask(x), x, p);
}

Tensor composed_dropout_mask(Tensor x, double p) {
  return drawn(empty_mask(x), x, p);
}

// The mask has an element for each channel of each sample.
Tensor feature_dropout_mask(Tensor x, double p) {
  TORCH_CHECK(p == 0 || x.dim() >= 2,
              "Feature dropout requires at least 2 dimensions in the input");
  auto sizes = x.sizes().vec();
  std::fill(sizes.begin() + std::min<int64_t>(2, x.dim()), sizes.end(), 1);
  return drawn(at::empty(sizes, x.options().dtype(at::kBool)), x, p);
}

// ---- alpha dropout: an affine function, whose offset, too, depends on the mask ----

// The value that dropped elements take, -1.758, is that of selu at minus infinity.
constexpr double kAlpha = 1.7580993408473766;

double alpha_scale(double p) {
  return 1. / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
}

// Returns one element of ATen's noise, rounded in the same way.
Tensor alpha_noise_value(const Tensor& like, double p) {
  return p == 1 ? at::zeros({}, like.options()) : at::ones({}, like.options()).mul_(alpha_scale(p));
}

Tensor apply_alpha_dropout_mask(Tensor x, Tensor mask, double p) {
  if (p == 0)
    return x.clone();
  auto product = masked(x, mask, alpha_noise_value(x, p));
  if (p == 1)
    return product;
  const auto factor = kAlpha * alpha_scale(p);
  return product.add_(mask.to(x.scalar_type()).add_(-1).mul_(factor).add_(factor * p));
}

Tensor alpha_dropout_backward(Tensor grad, Tensor mask, double p) {
  return p == 0 ? grad.clone() : masked(grad, mask, alpha_noise_value(grad, p));
}

}  // namespace

void register_dropout_operators() {
  static const torch::jit::RegisterOperators registered({
      // The masks draw from the generator; ir/operator_facts.cpp says so.
      pure_operator("aten_recompute::dropout_mask(Tensor x, float p) -> Tensor", &dropout_mask),
      pure_operator("aten_recompute::composed_dropout_mask(Tensor x, float p) -> Tensor",
                    &composed_dropout_mask),
      pure_operator("aten_recompute::dropout_in_place(Tensor input, float p, bool train) -> Tensor",
                    &dropout_in_place),
      pure_operator("aten_recompute::multiply_by_noise(Tensor x, Tensor mask, float p) -> Tensor",
                    &multiply_by_noise),
      in_place_operator("aten_recompute::multiply_by_noise_(Tensor(a!) x, Tensor mask, float p) "
                        "-> Tensor(a!)",
                        &multiply_by_noise_in_place),
      pure_operator("aten_recompute::feature_dropout_mask(Tensor x, float p) -> Tensor",
                    &feature_dropout_mask),
      pure_operator("aten_recompute::apply_alpha_dropout_mask(Tensor x, Tensor mask, float p) "
                    "-> Tensor",
                    &apply_alpha_dropout_mask),
      pure_operator("aten_recompute::alpha_dropout_backward(Tensor grad, Tensor mask, float p) "
                    "-> Tensor",
                    &alpha_dropout_backward),
      pure_operator("aten_recompute::apply_dropout_mask(Tensor x, Tensor mask, float p) -> Tensor",
                    &apply_dropout_mask),
      in_place_operator("aten_recompute::apply_dropout_mask_(Tensor(a!) x, Tensor mask, float p) "
                        "-> Tensor(a!)",
                        &apply_dropout_mask_in_place),
  });
}

}  // namespace aten_recompute
