#include "rules/kernels/numbers.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <cstdint>
#include <optional>

#include "ir/memory_reuse.h"
#include "rules/kernels/parallel.h"
#include "rules/kernels/plain_operands.h"
#include "rules/kernels/vectorized.h"

namespace aten_recompute {
namespace {

using at::Scalar;
using at::Tensor;

template <class Number>
ATEN_RECOMPUTE_INLINED void compute(NumberOperation operation, const Number* from, Number number,
                                    Number* to, int64_t count) {
  // The result may lie in the memory of the tensor.
  switch (operation) {
    case NumberOperation::kAdd:
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i)
        to[i] = from[i] + number;
      break;
    case NumberOperation::kSubtract:
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i)
        to[i] = from[i] - number;
      break;
    case NumberOperation::kMultiply:
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i)
        to[i] = from[i] * number;
      break;
    case NumberOperation::kDivide:
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i)
        to[i] = from[i] / number;
      break;
  }
}

ATEN_RECOMPUTE_VECTORIZED
void compute_floats(NumberOperation operation, const float* from, float number, float* to,
                    int64_t count) {
  compute(operation, from, number, to, count);
}

ATEN_RECOMPUTE_VECTORIZED
void compute_doubles(NumberOperation operation, const double* from, double number, double* to,
                     int64_t count) {
  compute(operation, from, number, to, count);
}

template <class Number>
Number rounded(const Scalar& number) {
  return number.isFloatingPoint() ? static_cast<Number>(number.toDouble())
                                  : static_cast<Number>(number.toLong());
}

template <class Number, class Range>
void compute(NumberOperation operation, const Tensor& self, const Scalar& number,
             const Tensor& result, const Range& range) {
  const auto* from = self.const_data_ptr<Number>();
  auto* to = result.mutable_data_ptr<Number>();
  const auto value = rounded<Number>(number);
  at::parallel_for(0, self.numel(), at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
    range(operation, from + begin, value, to + begin, end - begin);
  });
}

// Returns whether the elements lie without gaps, and the number is real.
bool takes_number(const Tensor& self, const Scalar& number) {
  return (number.isFloatingPoint() || number.isIntegral(/*includeBool=*/false)) &&
         !number.isSymbolic() && is_plain_operand(self) && self.is_non_overlapping_and_dense();
}

Tensor memory_like(const Tensor& self) {
  if (self.is_contiguous())
    return at::detail::empty_cpu(self.sizes(), self.scalar_type());
  return at::empty_strided(self.sizes(), self.strides(), self.options());
}

void compute(NumberOperation operation, const Tensor& self, const Scalar& number,
             const Tensor& result) {
  if (self.scalar_type() == at::kFloat)
    compute<float>(operation, self, number, result, compute_floats);
  else
    compute<double>(operation, self, number, result, compute_doubles);
}

}  // namespace

std::optional<Tensor> with_number(NumberOperation operation, const Tensor& self,
                                  const Scalar& number) {
  if (!takes_number(self, number) ||
      !number_keeps_strides(self.sizes(), self.strides(), self.is_contiguous()))
    return std::nullopt;
  auto result = memory_like(self);
  compute(operation, self, number, result);
  return result;
}

bool with_number_in_place(NumberOperation operation, const Tensor& self, const Scalar& number) {
  if (!takes_number(self, number))
    return false;
  compute(operation, self, number, self);
  return true;
}

}  // namespace aten_recompute
