#include "backend/method/before_call.h"

#include <ATen/core/grad_mode.h>

#include "ir/attribute_path.h"

namespace aten_recompute {

BeforeCall::BeforeCall(const std::vector<std::vector<std::string>>& written,
                       const c10::intrusive_ptr<c10::ivalue::Object>& self,
                       const std::vector<c10::IValue>& inputs)
    : random_states_(inputs) {
  const at::NoGradGuard no_grad;
  for (const auto& path : written) {
    const auto value = read_path(self, path);
    if (!value || !value->isTensor() || !value->toTensor().defined())
      continue;
    const auto& tensor = value->toTensor();
    const auto counter = tensor.unsafeGetTensorImpl()->version_counter();
    const auto version = counter.enabled() ? counter.current_version() : 0;
    tensors_.push_back({tensor.variable_data(), tensor.variable_data().clone(), counter, version});
  }
}

void BeforeCall::restore() {
  const at::NoGradGuard no_grad;
  for (auto& written : tensors_) {
    written.data.copy_(written.before);
    if (written.counter.enabled())
      written.counter.set_version(written.version);
  }
  random_states_.set();
}

}  // namespace aten_recompute
