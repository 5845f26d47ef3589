#include "rules/kernels/plain_operands.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/grad_mode.h>

#include "common/environment.h"

namespace aten_recompute {

bool is_plain_operand(const at::Tensor& tensor) {
  static const bool is_off = environment_is("RECOMPUTE_FASTER_OPERATORS", "off");
  if (is_off || !tensor.is_cpu() || tensor.layout() != at::kStrided || tensor.is_neg() ||
      tensor._is_zerotensor() || at::isTensorSubclassLike(tensor))
    return false;
  const auto type = tensor.scalar_type();
  return (type == at::kFloat || type == at::kDouble) &&
         !(at::GradMode::is_enabled() && tensor.requires_grad());
}

}  // namespace aten_recompute
