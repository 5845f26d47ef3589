#include "passes/region/autocast_inputs.h"

#include <ATen/Functions.h>

#include "passes/autodiff/not_differentiable.h"
#include "runtime/map_tensors.h"

namespace aten_recompute {

at::Tensor on_meta(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided)
    throw NotDifferentiable("under autocast, the types of sparse tensors are not followed");
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kMeta).requires_grad(false));
}

std::vector<c10::IValue> on_meta(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> result;
  for (const auto& value : values)
    result.push_back(map_tensors(value, [](const at::Tensor& tensor) { return on_meta(tensor); }));
  return result;
}

c10::DeviceType device_of(const std::vector<c10::IValue>& inputs) {
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined())
      return input.toTensor().device().type();
  }
  return at::kCPU;
}

bool is_cached_by_autocast(const c10::IValue& input) {
  if (!input.isTensor() || !input.toTensor().defined())
    return false;
  const auto& tensor = input.toTensor();
  return tensor.scalar_type() == at::kFloat && tensor.requires_grad() && tensor.is_leaf() &&
         !tensor.is_view();
}

}  // namespace aten_recompute
