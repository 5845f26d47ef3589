// Dropout with a bool mask in place of ATen's noise. It gives the same numbers and uses a quarter
// of the bytes.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <tuple>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/vectorised.h"

namespace aten_recompute {
namespace {

using at::Tensor;

// Computes x * noise, where noise is 0 or `scale`. Multiplying by 0 keeps the sign of zeros, and
// NaN.
ATEN_RECOMPUTE_VECTORISED
void multiply_range(const float* x, const uint8_t* mask, float scale, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = x[i] * (static_cast<float>(mask[i]) * scale);
}

ATEN_RECOMPUTE_VECTORISED
void multiply_range(const double* x, const uint8_t* mask, double scale, double* out,
                    int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = x[i] * (static_cast<double>(mask[i]) * scale);
}

ATEN_RECOMPUTE_VECTORISED
void multiply_range(const at::BFloat16* x, const uint8_t* mask, at::BFloat16 scale,
                    at::BFloat16* out, int64_t count) {
  const auto factor = static_cast<float>(scale);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = at::BFloat16(static_cast<float>(x[i]) * (static_cast<float>(mask[i]) * factor));
  }
}

template <class Scalar>
void multiply_range(const Scalar* x, const uint8_t* mask, Scalar scale, Scalar* out,
                    int64_t count) {
  const auto factor = static_cast<float>(scale);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<Scalar>(static_cast<float>(x[i]) * (static_cast<float>(mask[i]) * factor));
  }
}

// Returns one element of ATen's noise, computed by the same operators so that it is rounded in the
// same way.
Tensor noise_value(const Tensor& like, double p) {
  if (p == 1)
    return at::zeros({1}, like.options());
  return at::ones({1}, like.options()).div_(1 - p);
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

Tensor apply_dropout_mask(Tensor x, Tensor mask, double p) {
  if (!x.device().is_cpu()) {
    return at::native_dropout_backward(x, mask, p == 1 ? 0.0 : 1.0 / (1.0 - p));
  }
  const auto scale = noise_value(x, p);
  if (!has_layout_of(x, mask))
    return x.mul(mask.to(x.scalar_type()).mul_(scale));
  auto output = at::empty_like(x);
  multiply_into(output, x, mask, scale);
  return output;
}

// Called on the last use of x (runtime/in_place.h).
Tensor apply_dropout_mask_in_place(Tensor x, Tensor mask, double p) {
  if (!has_layout_of(x, mask))
    return x.copy_(apply_dropout_mask(x, mask, p));
  multiply_into(x, x, mask, noise_value(x, p));
  return x;
}

Tensor dropout_mask(Tensor x, double p) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const auto options = x.options().dtype(at::kBool);
  if (p == 0)
    return at::ones_like(x, options);
  if (p == 1)
    return at::zeros_like(x, options);
  if (!x.device().is_cpu()) {
    // Only the fused kernel draws these numbers. Its output is computed again from the mask.
    return x.numel() == 0 ? at::empty_like(x, options)
                          : std::get<1>(at::native_dropout(x, p, /*train=*/true));
  }
  // For doubles, the generator advances differently and gives other numbers, so a double tensor is
  // filled.
  if (x.scalar_type() == at::kDouble)
    return at::empty_like(x).bernoulli_(1 - p).to(at::kBool);
  return at::empty_like(x, options).bernoulli_(1 - p);
}

}  // namespace

void register_dropout_operators() {
  static const torch::jit::RegisterOperators registered({
      // This operator draws from the generator; ir/operator_facts.cpp says so.
      pure_operator("aten_recompute::dropout_mask(Tensor x, float p) -> Tensor", &dropout_mask),
      pure_operator("aten_recompute::apply_dropout_mask(Tensor x, Tensor mask, float p) -> Tensor",
                    &apply_dropout_mask),
      in_place_operator("aten_recompute::apply_dropout_mask_(Tensor(a!) x, Tensor mask, float p) "
                        "-> Tensor(a!)",
                        &apply_dropout_mask_in_place),
  });
}

}  // namespace aten_recompute
