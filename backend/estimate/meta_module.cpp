#include "backend/estimate/meta_module.h"

#include <ATen/core/grad_mode.h>

#include "backend/method/share_tensors.h"
#include "ir/meta_copies.h"

namespace aten_recompute {

using c10::IValue;
using torch::jit::Module;

MetaCall on_meta(const Module& given, const std::vector<IValue>& inputs,
                 std::optional<at::Device> device) {
  const at::NoGradGuard no_grad;
  MetaCall call{plain_clone(given), {}, at::kCPU};
  MetaCopies copies;
  for (const auto& module : call.module.modules()) {
    const auto object = module._ivalue();
    for (size_t i = 0; i < module.type()->numAttributes(); ++i) {
      if (!object->getSlot(i).isModule())
        object->setSlot(i, copies.of(object->getSlot(i)));
    }
  }
  for (const auto& input : inputs)
    call.inputs.push_back(copies.of(input));
  call.device = device.value_or(copies.device().value_or(at::kCPU));
  return call;
}

}  // namespace aten_recompute
