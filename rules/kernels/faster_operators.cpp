// Operators that runtime/faster_operator runs in place of ATen's.
#include <ATen/ATen.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/numbers.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/short_rows.h"
#include "rules/kernels/small_products.h"
#include "rules/kernels/views.h"

namespace aten_recompute {
namespace {

using at::Scalar;
using at::Tensor;
using Sizes = std::vector<int64_t>;
using Bound = std::optional<int64_t>;

Tensor boxed_mul(Tensor self, Tensor other) {
  return aten_recompute::mul(self, other);
}

Tensor boxed_mul_to(Tensor self, Tensor other, Tensor result) {
  return mul_to(self, other, std::move(result));
}

Tensor boxed_bmm(Tensor self, Tensor mat2) {
  return aten_recompute::bmm(self, mat2);
}

Tensor mul_number(Tensor self, Scalar number) {
  const auto result = with_number(NumberOperation::kMultiply, self, number);
  return result ? *result : at::mul(self, number);
}

Tensor mul_number_in_place(Tensor self, Scalar number) {
  return with_number_in_place(NumberOperation::kMultiply, self, number) ? self : self.mul_(number);
}

Tensor div_number(Tensor self, Scalar number) {
  const auto result = with_number(NumberOperation::kDivide, self, number);
  return result ? *result : at::div(self, number);
}

Tensor div_number_in_place(Tensor self, Scalar number) {
  return with_number_in_place(NumberOperation::kDivide, self, number) ? self : self.div_(number);
}

bool has_no_factor(const Scalar& alpha) {
  return !alpha.isComplex() && alpha.equal(1);  // ATen raises for complex factors
}

// Sums have a factor of the number. The product of both is not rounded everywhere before it is
// added, so that ATen computes it.
Tensor with_factor(NumberOperation operation, const Tensor& self, const Scalar& number,
                   const Scalar& alpha,
                   Tensor (*by_aten)(const Tensor&, const Scalar&, const Scalar&)) {
  const auto result = has_no_factor(alpha) ? with_number(operation, self, number) : std::nullopt;
  return result ? *result : by_aten(self, number, alpha);
}

Tensor add_number(Tensor self, Scalar number, Scalar alpha) {
  return with_factor(NumberOperation::kAdd, self, number, alpha, &at::add);
}

Tensor add_number_in_place(Tensor self, Scalar number, Scalar alpha) {
  const bool is_done =
      has_no_factor(alpha) && with_number_in_place(NumberOperation::kAdd, self, number);
  return is_done ? self : self.add_(number, alpha);
}

Tensor sub_number(Tensor self, Scalar number, Scalar alpha) {
  return with_factor(NumberOperation::kSubtract, self, number, alpha, &at::sub);
}

Tensor sub_number_in_place(Tensor self, Scalar number, Scalar alpha) {
  const bool is_done =
      has_no_factor(alpha) && with_number_in_place(NumberOperation::kSubtract, self, number);
  return is_done ? self : self.sub_(number, alpha);
}

Tensor boxed_view(Tensor self, Sizes sizes) {
  return aten_recompute::view(self, sizes);
}

Tensor boxed_reshape(Tensor self, Sizes sizes) {
  return aten_recompute::reshape(self, sizes);
}

Tensor boxed_permute(Tensor self, Sizes dims) {
  return aten_recompute::permute(self, dims);
}

Tensor boxed_unsqueeze(Tensor self, int64_t dim) {
  return aten_recompute::unsqueeze(self, dim);
}

Tensor boxed_expand(Tensor self, Sizes sizes, bool /*implicit*/) {
  return aten_recompute::expand(self, sizes);
}

Tensor boxed_transpose(Tensor self, int64_t first, int64_t second) {
  return aten_recompute::transpose(self, first, second);
}

Tensor boxed_slice(Tensor self, int64_t dim, Bound start, Bound end, int64_t step) {
  return aten_recompute::slice(self, dim, start, end, step);
}

Tensor boxed_narrow(Tensor self, int64_t dim, int64_t start, int64_t length) {
  return aten_recompute::narrow(self, dim, start, length);
}

Tensor boxed_select(Tensor self, int64_t dim, int64_t index) {
  return aten_recompute::select(self, dim, index);
}

// A view, of which LibTorch knows by the schema.
template <class Result, class... Arguments>
torch::jit::Operator view_operator(const std::string& schema, Result (*function)(Arguments...)) {
  return boxed_operator(schema, function, c10::AliasAnalysisKind::FROM_SCHEMA);
}

}  // namespace

void register_faster_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::mul(Tensor self, Tensor other) -> Tensor", &boxed_mul),
      in_place_operator(
          "aten_recompute::mul_out(Tensor self, Tensor other, Tensor(a!) out) -> Tensor(a!)",
          &boxed_mul_to),
      pure_operator("aten_recompute::bmm(Tensor self, Tensor mat2) -> Tensor", &boxed_bmm),

      pure_operator("aten_recompute::mul_number(Tensor self, Scalar other) -> Tensor", &mul_number),
      in_place_operator("aten_recompute::mul_number_(Tensor(a!) self, Scalar other) -> Tensor(a!)",
                        &mul_number_in_place),
      pure_operator("aten_recompute::div_number(Tensor self, Scalar other) -> Tensor", &div_number),
      in_place_operator("aten_recompute::div_number_(Tensor(a!) self, Scalar other) -> Tensor(a!)",
                        &div_number_in_place),
      pure_operator(
          "aten_recompute::add_number(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
          &add_number),
      in_place_operator(
          "aten_recompute::add_number_(Tensor(a!) self, Scalar other, Scalar alpha=1) "
          "-> Tensor(a!)",
          &add_number_in_place),
      pure_operator(
          "aten_recompute::sub_number(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
          &sub_number),
      in_place_operator(
          "aten_recompute::sub_number_(Tensor(a!) self, Scalar other, Scalar alpha=1) "
          "-> Tensor(a!)",
          &sub_number_in_place),

      view_operator("aten_recompute::view(Tensor(a) self, int[] size) -> Tensor(a)", &boxed_view),
      view_operator("aten_recompute::reshape(Tensor(a) self, int[] shape) -> Tensor(a)",
                    &boxed_reshape),
      view_operator("aten_recompute::permute(Tensor(a) self, int[] dims) -> Tensor(a)",
                    &boxed_permute),
      view_operator("aten_recompute::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
                    &boxed_unsqueeze),
      view_operator("aten_recompute::expand(Tensor(a) self, int[] size, *, bool implicit=False) -> "
                    "Tensor(a)",
                    &boxed_expand),
      view_operator("aten_recompute::transpose(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
                    &boxed_transpose),
      view_operator("aten_recompute::slice(Tensor(a) self, int dim=0, int? start=None, int? "
                    "end=None, int step=1) -> Tensor(a)",
                    &boxed_slice),
      view_operator(
          "aten_recompute::narrow(Tensor(a) self, int dim, int start, int length) -> Tensor(a)",
          &boxed_narrow),
      view_operator("aten_recompute::select(Tensor(a) self, int dim, int index) -> Tensor(a)",
                    &boxed_select),
  });
}

}  // namespace aten_recompute
