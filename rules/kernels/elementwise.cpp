// Operators that gradients of elementwise operators need and ATen does not have.
#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <optional>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;

at::Scalar conj(at::Scalar scalar) {
  return scalar.conj();
}

// ---- Functional forms of operators in place whose gradient is another one ----

// Returns whether autograd differentiates what is computed from the tensor, in a region that runs
// again for second derivatives. Then it has to be the operator in place.
bool is_recorded(const Tensor& self) {
  return at::GradMode::is_enabled() && self.requires_grad();
}

// Returns a copy in the same layout, for an operator in place.
Tensor copy_of(const Tensor& self) {
  if (self.is_non_overlapping_and_dense())
    return self.clone();
  return at::empty_strided(self.sizes(), self.strides(), self.options()).copy_(self);
}

// The gradient is computed from the result.
Tensor elu_in_place(Tensor self, at::Scalar alpha, at::Scalar scale, at::Scalar input_scale) {
  if (!is_recorded(self))
    return at::elu(self, alpha, scale, input_scale);
  auto result = copy_of(self);
  return at::elu_(result, alpha, scale, input_scale);
}

Tensor selu_in_place(Tensor self) {
  if (!is_recorded(self))
    return at::selu(self);
  auto result = copy_of(self);
  return at::selu_(result);
}

Tensor celu_in_place(Tensor self, at::Scalar alpha) {
  if (!is_recorded(self))
    return at::celu(self, alpha);
  auto result = copy_of(self);
  return at::celu_(result, alpha);
}

// Unlike bernoulli(), it has a gradient, and draws its numbers in the order of memory.
Tensor bernoulli_in_place(Tensor self, double p, std::optional<at::Generator> generator) {
  return (is_recorded(self) ? copy_of(self) : at::empty_like(self))
      .bernoulli_(p, std::move(generator));
}

// Formulas use these functions instead of `alpha == 1`, because TorchScript's comparison of a
// complex Scalar corrupts the stack.
bool is_one(at::Scalar scalar) {
  return scalar.equal(1);
}

bool is_zero(at::Scalar scalar) {
  return scalar.equal(0);
}

// Autograd rounds some factors to single precision (Scalar::toFloat).
double single_precision(at::Scalar scalar) {
  return scalar.toFloat();
}

// Returns whether a tensor of `Type` that was clamped to these bounds is on a bound, or beyond it,
// exactly where the argument was. The clamp rounds the bounds to the type and the comparison does
// not. If a bound is rounded inwards, no clamped element reaches it.
template <class Type>
bool clamp_reaches(float lower, float upper) {
  return static_cast<float>(static_cast<Type>(lower)) <= lower &&
         static_cast<float>(static_cast<Type>(upper)) >= upper;
}

// Returns whether hardtanh_backward() gives the same for the result of hardtanh as for its
// argument, whatever their type: float and double do not round the bounds, or round them in both
// places.
bool result_shows_clamping(at::Scalar lower, at::Scalar upper) {
  const auto low = static_cast<float>(lower.toDouble());
  const auto high = static_cast<float>(upper.toDouble());
  return clamp_reaches<at::BFloat16>(low, high) && clamp_reaches<at::Half>(low, high);
}

// Returns the sizes of an optional argument, e.g. a bias, so that a formula need not keep it.
std::optional<std::vector<int64_t>> optional_size(std::optional<Tensor> tensor) {
  if (!tensor || !tensor->defined())
    return std::nullopt;
  return tensor->sizes().vec();
}

std::vector<int64_t> size_of(std::optional<Tensor> tensor) {
  return optional_size(std::move(tensor)).value_or(std::vector<int64_t>{});
}

// Follows FunctionsManual.cpp, pow_backward_exponent. `mask` is true where the gradient is 0.
Tensor masked_pow_grad(const Tensor& grad, const Tensor& mask, const Tensor& factor) {
  return grad * at::where(mask, at::zeros({}, grad.options()), factor.conj());
}

Tensor pow_grad_exponent(Tensor grad, Tensor self, Tensor exponent, Tensor result) {
  const auto positive = exponent.is_complex()
                            ? at::logical_and(at::imag(exponent) == 0, at::real(exponent) >= 0)
                            : exponent >= 0;
  const auto mask = at::logical_and(self == 0, positive);
  const auto base = self.to(at::result_type(self, exponent));
  return masked_pow_grad(grad, mask, result * base.log());
}

Tensor pow_grad_exponent_of_scalar(Tensor grad, at::Scalar base, Tensor exponent, Tensor result) {
  const auto log_base = base.isComplex() ? at::Scalar(std::log(base.toComplexDouble()))
                                         : at::Scalar(std::log(base.toDouble()));
  if (!base.equal(0.0))
    return grad * (result * log_base).conj();
  const auto mask = exponent.is_complex()
                        ? at::logical_and(at::imag(exponent) == 0, at::real(exponent) >= 0)
                        : exponent >= 0;
  return masked_pow_grad(grad, mask, result * log_base);
}

// Follows FunctionsManual.cpp, sgn_backward.
Tensor sgn_grad(Tensor grad, Tensor self, Tensor result) {
  if (!self.is_complex())
    return at::zeros_like(grad);
  const auto abs = self.abs();
  return ((grad - (result * result) * grad.conj()) / (2. * abs)).masked_fill_(abs == 0., 0.);
}

// Raises the error for an argument that autograd does not differentiate. Autograd raises it before
// the forward, this operator when the gradient is needed.
Tensor not_differentiable(Tensor /*grad*/, std::string op, std::string argument) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the derivative for '", argument, "' of ", op,
                              " is not implemented");
}

}  // namespace

void register_elementwise_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator(
          "aten_recompute::elu_in_place(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar "
          "input_scale=1) -> Tensor",
          &elu_in_place),
      pure_operator("aten_recompute::selu_in_place(Tensor self) -> Tensor", &selu_in_place),
      pure_operator("aten_recompute::celu_in_place(Tensor self, Scalar alpha=1.0) -> Tensor",
                    &celu_in_place),
      pure_operator("aten_recompute::bernoulli_in_place(Tensor self, float p=0.5, *, Generator? "
                    "generator=None) -> Tensor",
                    &bernoulli_in_place),
      pure_operator("aten_recompute::conj(Scalar scalar) -> Scalar", &conj),
      pure_operator("aten_recompute::is_one(Scalar scalar) -> bool", &is_one),
      pure_operator("aten_recompute::is_zero(Scalar scalar) -> bool", &is_zero),
      pure_operator("aten_recompute::single_precision(Scalar scalar) -> float", &single_precision),
      pure_operator("aten_recompute::result_shows_clamping(Scalar lower, Scalar upper) -> bool",
                    &result_shows_clamping),
      pure_operator("aten_recompute::optional_size(Tensor? tensor) -> int[]?", &optional_size),
      pure_operator("aten_recompute::size_of(Tensor? tensor) -> int[]", &size_of),
      pure_operator("aten_recompute::pow_grad_exponent(Tensor grad, Tensor self, Tensor exponent, "
                    "Tensor result) -> Tensor",
                    &pow_grad_exponent),
      pure_operator("aten_recompute::pow_grad_exponent_of_scalar(Tensor grad, Scalar base, "
                    "Tensor exponent, Tensor result) -> Tensor",
                    &pow_grad_exponent_of_scalar),
      pure_operator("aten_recompute::sgn_grad(Tensor grad, Tensor self, Tensor result) -> Tensor",
                    &sgn_grad),
      pure_operator("aten_recompute::not_differentiable(Tensor grad, str op, str argument) "
                    "-> Tensor",
                    &not_differentiable),
  });
}

}  // namespace aten_recompute
