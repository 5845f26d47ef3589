#include "runtime/tensor_snapshots.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace aten_recompute {

void TensorSnapshots::add(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const auto counter = tensor.unsafeGetTensorImpl()->version_counter();
  if (counter.enabled())
    versions_.push_back({counter, counter.current_version()});
  if (!tensor.has_storage()) {
    memory_.push_back({tensor, tensor.clone()});
    return;
  }
  const auto& storage = tensor.storage();
  if (!storages_.insert(storage.unsafeGetStorageImpl()).second)
    return;
  // A tensor of its own has a version counter of its own.
  const auto size = static_cast<int64_t>(storage.nbytes());
  auto bytes = at::empty({0}, tensor.options().dtype(at::kByte)).set_(storage, 0, {size}, {1});
  memory_.push_back({bytes, bytes.clone()});
}

void TensorSnapshots::restore() {
  const at::NoGradGuard no_grad;
  // In reverse order: what was added twice gets its first content.
  for (auto memory = memory_.rbegin(); memory != memory_.rend(); ++memory)
    memory->target.copy_(memory->before);
  for (auto version = versions_.rbegin(); version != versions_.rend(); ++version)
    version->counter.set_version(version->version);
}

}  // namespace aten_recompute
