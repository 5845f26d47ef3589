#include "passes/frontend/path/apart_memory.h"

#include <algorithm>
#include <unordered_set>

#include "ir/attribute_path.h"

namespace aten_recompute {
namespace {

const void* storage_of(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage())
    return nullptr;
  return value.toTensor().storage().unsafeGetStorageImpl();
}

}  // namespace

bool are_apart(const ApartFrom& tensors, const c10::intrusive_ptr<c10::ivalue::Object>& self,
               const std::vector<c10::IValue>& inputs) {
  std::unordered_set<const void*> written;
  for (const auto& path : tensors.written) {
    const auto value = read_path(self, path);
    const void* storage = value ? storage_of(*value) : nullptr;
    if (storage == nullptr || value->toTensor().requires_grad() || !written.insert(storage).second)
      return false;
  }
  if (written.empty())
    return true;
  bool apart = true;
  const auto see = [&](const c10::IValue& value) {
    apart = apart && written.count(storage_of(value)) == 0;
    return false;
  };
  for (const auto& path : tensors.read) {
    if (const auto value = read_path(self, path))
      see(*value);
  }
  for (const auto& input : inputs)
    input.visit(see);
  return apart;
}

}  // namespace aten_recompute
